"""The published contracts, made from the code: schemas of facts, AsyncAPI, tables; what may change between releases.

Pure functions from registry, definitions and apps to text. `contracts/generate.py` at the root calls them; nothing does
at run time.
"""
