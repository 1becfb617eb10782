"""Work beside other hosts on a shared store: presence, leadership of triggers, commands of people.

Everything here is unused, and not imported, where the store is no `SharedStore`.
"""
