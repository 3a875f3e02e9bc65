"""What makes the company move: a node claims wakeups, runs agents, books what came of it, and fences itself."""
