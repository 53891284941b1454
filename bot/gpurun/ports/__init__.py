"""Protocols of everything outside the process. Adapters implement them; `wiring` connects them."""
