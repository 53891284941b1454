"""The only code that orders side effects."""
