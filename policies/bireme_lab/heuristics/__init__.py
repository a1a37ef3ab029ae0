"""Rules of papers that policies are compared with."""
