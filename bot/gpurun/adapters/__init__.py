"""Vendor errors end here: each adapter implements one port."""
