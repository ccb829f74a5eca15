"""Reads the names at addresses through ctypes. Wrong: the table has an address of 0 behind its last name."""

import ctypes

TEXTS = [ctypes.create_string_buffer(text) for text in (b"anna", b"bert", b"carl")]


def table():
    return [ctypes.addressof(text) for text in TEXTS] + [0]


def name_of(address):
    return ctypes.string_at(address)


def report(addresses):
    return b", ".join(name_of(address) for address in addresses)


print(report(table()))
