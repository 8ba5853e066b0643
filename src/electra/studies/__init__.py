"""Runs to reports."""
