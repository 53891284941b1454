"""PostgreSQL for tests."""
