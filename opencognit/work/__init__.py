"""What is to be done and by whom: verbs over goals, tasks, wakeups, runs. Each `verb(session, ...)` never commits.

Lock order, so that no two verbs wait for each other: the goal first, then the run, then tasks by rising id.
"""
