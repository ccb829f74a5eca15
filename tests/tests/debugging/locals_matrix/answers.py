# Runs inside GDB. Opens each core, and writes the variables of the frames of the program's own
# source, as a line of JSON for each core. `LOCALS_ANSWERS` has the settings as JSON. An internal
# error ends GDB; the file `current` names the core and the frame.
import gdb
import json
import os
import runpy
import sys

settings = json.loads(os.environ["LOCALS_ANSWERS"])
source = settings["source"]

# The number of frames that are read of a core.
DEPTH = 60


def said(command):
    try:
        return gdb.execute(command, to_string=True)
    except gdb.error as error:
        return "<%s>\n" % error


def place_of(frame):
    place = frame.find_sal()
    if place.symtab and os.path.basename(place.symtab.filename) == source:
        return place.line
    return None


def beginning(frame):
    """The lines that begin at the address where the frame's line begins."""
    place = frame.find_sal()
    return [row.line for row in place.symtab.linetable() if row.pc == place.pc]


def printer_of_go(value):
    """Go's printer of a string or a slice."""
    for name in ["StringTypePrinter", "SliceTypePrinter"]:
        is_named = script[name].pattern.match(str(value.type))
        if value.type.code == gdb.TYPE_CODE_STRUCT and is_named:
            return script[name](value)
    return None


def declared(frame):
    """The lines of the declarations, by name; of several, that of the innermost."""
    lines, block = {}, frame.block()
    while block and not block.is_static and not block.is_global:
        for symbol in block:
            lines.setdefault(symbol.name, symbol.line)
        if block.function:
            break
        block = block.superblock
    return lines


def variables_of(frame, core, number):
    """The variables as text; nothing if they ended GDB in an earlier run."""
    if [core, number] in settings["failed"]:
        return None
    with open(settings["current"], "w") as current:
        json.dump([core, number], current)
    frame.select()
    return said("info args") + said("info locals")


def frames(core):
    """The frames of the source. Frames of tail calls are GDB's own estimate, and not counted."""
    found, frame, number = [], gdb.newest_frame(), 0
    while frame and number < DEPTH and len(found) < settings["frames"]:
        if frame.type() != gdb.TAILCALL_FRAME:
            line = place_of(frame)
            if line is not None and frame.function():
                found.append(
                    {
                        "number": number,
                        "pc": frame.pc(),
                        "line": line,
                        "function": str(frame.function()),
                        "beginning": beginning(frame),
                        "declared": declared(frame),
                        "variables": variables_of(frame, core, number),
                    }
                )
            number += 1
        try:
            frame = frame.older()
        except gdb.error:
            break
    return found


# The caches would keep memory of the core before.
for setting in ["pagination off", "confirm off", "width 0", "stack-cache off", "code-cache off"]:
    gdb.execute("set " + setting)
for setting in settings["settings"]:
    gdb.execute("set " + setting)
if settings["language"] == "Rust":
    sys.path.append(settings["scripts"])
    import gdb_lookup

    gdb.pretty_printers.append(gdb_lookup.printer)
if settings["language"] == "Go":
    script = runpy.run_path(settings["scripts"] + "/runtime-gdb.py")
    script["goobjfile"].pretty_printers = []
    gdb.pretty_printers.append(printer_of_go)

with open(settings["answers"], "a") as answers:
    for core in range(settings["first"], settings["count"]):
        gdb.execute("core-file %s/core.%d" % (settings["folder"], core), to_string=True)
        thread = gdb.selected_thread().ptid
        answers.write(json.dumps({"thread": thread[1] or thread[0], "frames": frames(core)}) + "\n")
        answers.flush()
