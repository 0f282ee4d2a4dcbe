#!/bin/sh
# Stands for a person's editor: changes a word and adds a line.
sed -i 's/cat/고양이/; $a👩🏽‍🌾 added' "$1"
