# Runs inside GDB. Opens each core, and writes the variables of the frames of the program's own
# source, as a line of JSON for each core. `LOCALS_ANSWERS` has the settings as JSON.
import gdb
import json
import os
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


def frames():
    """The frames of the source. Frames of tail calls are GDB's own estimate, and not counted."""
    found, frame, number = [], gdb.newest_frame(), 0
    while frame and number < DEPTH and len(found) < settings["frames"]:
        if frame.type() != gdb.TAILCALL_FRAME:
            line = place_of(frame)
            if line is not None and frame.function():
                frame.select()
                found.append(
                    {
                        "number": number,
                        "pc": frame.pc(),
                        "line": line,
                        "function": str(frame.function()),
                        "declared": declared(frame),
                        "variables": said("info args") + said("info locals"),
                    }
                )
            number += 1
        try:
            frame = frame.older()
        except gdb.error:
            break
    return found


for setting in ["pagination off", "confirm off", "width 0"]:
    gdb.execute("set " + setting)
for setting in settings["settings"]:
    gdb.execute("set " + setting)
if settings["rust"]:
    sys.path.append(settings["rust"])
    import gdb_lookup

    gdb.pretty_printers.append(gdb_lookup.printer)

with open(settings["answers"], "w") as answers:
    for number in range(settings["count"]):
        gdb.execute("core-file %s/core.%d" % (settings["folder"], number), to_string=True)
        thread = gdb.selected_thread().ptid
        answers.write(json.dumps({"thread": thread[1] or thread[0], "frames": frames()}) + "\n")
