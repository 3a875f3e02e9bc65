"""Write what the tasks before this one found into summary.md: an OpenCognit agent as a plain script.

The daemon starts it in the task's own folder and gives it the briefing as JSON on standard input: the task, the results
of the tasks before it (`inputs`), and what the company remembers about the subject (`memories`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

LINES_EACH = 30


def shortened(text: str) -> str:
    """Return the first lines of a result, and how many are left out."""
    lines = text.strip().splitlines()
    left = len(lines) - LINES_EACH
    kept = [f"> {line}" for line in lines[:LINES_EACH]]
    return "\n".join([*kept, f"> (and {left} more lines)"] if left > 0 else kept)


def summary(briefing: dict[str, Any]) -> str:
    """Return the summary as Markdown, with where each part is from."""
    parts = [f"# {(briefing['task'] or {'title': 'Summary'})['title']}"]
    for source in briefing["inputs"]:
        parts.append(f"## {source['title']} (task {source['task_id']})\n\n{shortened(source['result'])}")
    if briefing["memories"]:
        known = "\n".join(f"- {memory['content']} ({memory['created_at'][:10]})" for memory in briefing["memories"][:5])
        parts.append(f"## What was known before\n\n{known}")
    return "\n\n".join(parts) + "\n"


def main() -> int:
    briefing = json.loads(sys.stdin.buffer.read())
    if not briefing["inputs"]:
        print("No task came before this one, so there is nothing to sum up: nest it under another item.", file=sys.stderr)
        return 1
    text = summary(briefing)
    Path("summary.md").write_text(text, encoding="utf-8")
    print(f"Summed up {len(briefing['inputs'])} results in summary.md.\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    sys.exit(main())
