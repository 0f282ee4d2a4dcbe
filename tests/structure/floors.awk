# Reads "FILE:LINE:#include ..." lines of all sources and prints the includes that break the floors.
# Variables: files (a file with one known source path per line).

# The innermost folder above path (or path itself) that is a room.
function room_of(path) {
    while (!(path in rooms) && sub(/\/[^\/]*$/, "", path)) continue
    return path
}

# The path from the top of a quoted include: beside the file, under src/, or from the top.
function resolve(file, name, beside, dots) {
    beside = file
    sub(/[^\/]*$/, "", beside)
    while (sub(/^\.\.\//, "", name)) sub(/[^\/]*\/$/, "", beside)
    if ((beside name) in known) return beside name
    if (("src/" name) in known) return "src/" name
    return name
}

function allow(room, list, words, n, i) {
    rooms[room]
    n = split(list, words, " ")
    for (i = 1; i <= n; i++) allowed[room, words[i]] = 1
}

BEGIN {
    FS = ":"
    while ((getline line < files) > 0) known[line] = 1

    # A room, and the rooms (or single headers) that it may include. A room in a folder of another
    # room is one of its own.
    allow("kernels", "")
    allow("src/base", "")
    allow("models", "kernels src/base")
    allow("src/engine", "models kernels src/base")
    allow("src/train", "src/engine models profiles/secret.h kernels src/base")
    allow("src/train/eval", "src/train src/engine models src/base")
    allow("src/train/data", "src/train/eval src/train src/engine models profiles src/base")
    allow("src/train/live", "src/train/data src/train/eval src/train src/engine models profiles src/base")
    allow("src/serve", "src/engine models kernels src/base")
    allow("profiles", "models src/base")
    allow("ui", "src/engine/engine.h src/train/live/live.h src/train/data/propose.h profiles src/base")
    allow("src/commands", "src/serve src/train/live src/train/data src/train/eval src/train src/engine models " \
        "kernels profiles ui src/base")
    allow("src/main.c", "src/commands")

    # A library header, and the files that may include it.
    place["sqlite3"] = "^profiles/"
    place["curses"] = place["ncurses"] = "^ui/"
    place["immintrin"] = place["x86intrin"] = place["arm_neon"] = place["cuda"] = place["cublas"] = "^kernels/"
    place["utf8proc"] = "^(ui/text|models/)"
    place["pcre2"] = "^(models|profiles)/"
    place["sodium"] = "^(profiles|models|src)/"
}

{
    file = $1
    line = $0
    sub(/^[^:]*:[^:]*:/, "", line)
    name = line
    if (line ~ /"/) {
        sub(/^[^"]*"/, "", name)
        sub(/".*/, "", name)
        target = resolve(file, name)
        room = room_of(file)
        if (room_of(target) != room && !((room, room_of(target)) in allowed) && !((room, target) in allowed))
            print "  " file ":" $2 " includes " target
    } else {
        sub(/^[^<]*</, "", name)
        sub(/>.*/, "", name)
        for (library in place)
            if (name ~ ("(^|/)" library "[a-z0-9_]*\\.h$") && file !~ place[library])
                print "  " file ":" $2 " includes " name
    }
}
