"""Offer the page as a server beside `up`."""
