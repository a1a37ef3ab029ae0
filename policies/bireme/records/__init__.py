"""What an operator saw and decided, cycle by cycle, as files that others can read again."""
