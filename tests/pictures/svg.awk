# Pictures of screens: reads what :cells steps of an interface script write (see preft-chat(1)) and
# writes NAME.svg for each into the folder OUT. A run of cells becomes one text of its exact width, so
# that lines meet whatever font the viewer has.
#
#   awk -v OUT=man/screens -f svg.awk CELLS

BEGIN {
    W = 8.4; H = 16.4; MARGIN = 10; GROUND = "#16181d"; INK = "#d8dbe2"
    split("#16181d #e06c75 #98c379 #d9b05f #61a6e8 #c58af0 #5cbfc9 #c9ccd3 " \
          "#7d828d #f08a92 #b3dc95 #f0cb82 #8cc3f7 #dcb0fa #86dbe3 #ffffff", palette, " ")
}

function color(n, otherwise) { return n == "-" ? otherwise : palette[n + 1] }

function escape(text) {
    gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/>/, "\\&gt;", text)
    return text
}

function finish() {
    if (file == "") return
    print "</g>\n</svg>" > file
    close(file)
}

/^== / {
    finish()
    split($3, size, "x")
    file = OUT "/" $2 ".svg"
    width = size[1] * W + 2 * MARGIN; height = size[2] * H + 2 * MARGIN
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\">\n", \
        width, height, width, height > file
    printf "<rect width=\"100%%\" height=\"100%%\" rx=\"6\" fill=\"%s\"/>\n", GROUND > file
    printf "<g transform=\"translate(%g %g)\" font-family=\"'DejaVu Sans Mono',Menlo,Consolas,monospace\"" \
        " font-size=\"14\" fill=\"%s\" xml:space=\"preserve\">\n", MARGIN, MARGIN, INK > file
    next
}

file != "" && NF >= 6 {
    # "Y X WIDTH FOREGROUND BACKGROUND ATTRIBUTES TEXT": the text keeps its blanks
    text = $0
    sub(/^[^ ]+ [^ ]+ [^ ]+ [^ ]+ [^ ]+ [^ ]+ /, "", text)
    fore = color($4, INK); back = color($5, GROUND)
    if ($6 ~ /r/) { swap = fore; fore = back; back = swap }
    x = $2 * W; y = $1 * H
    if (back != GROUND)
        printf "<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" fill=\"%s\"/>\n", x, y, $3 * W, H, back > file
    if (text ~ /^ *$/ && $6 !~ /u/) next
    cells = $3
    match(text, /^ */); lead = RLENGTH
    if ($6 !~ /u/) { # blanks at the ends are nothing
        x += lead * W; cells -= lead; text = substr(text, lead + 1)
        match(text, / *$/); cells -= RLENGTH; text = substr(text, 1, RSTART - 1)
    }
    printf "<text x=\"%g\" y=\"%g\" textLength=\"%g\" lengthAdjust=\"spacingAndGlyphs\"%s%s%s%s>%s</text>\n", \
        x, y + H - 3.8, cells * W, fore == INK ? "" : " fill=\"" fore "\"", \
        $6 ~ /b/ ? " font-weight=\"bold\"" : "", $6 ~ /d/ ? " opacity=\"0.6\"" : "", \
        $6 ~ /u/ ? " text-decoration=\"underline\"" : "", escape(text) > file
}

END { finish() }
