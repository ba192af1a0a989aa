"""What runs inside the sandbox: the standard library only, and no line that needs the rest of prefrl.

A confined interpreter finds this package by its folder; the packages above it are empty there.
"""
