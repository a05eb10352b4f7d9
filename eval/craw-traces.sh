#!/usr/bin/env bash
# Records traces of the six kinds of programs of the CRAW paper (section V.A), with today's Debian packages:
#   mp3 player (xmms)        mpg123, decoding to a file
#   image viewer (gqview)    feh, five pictures, one after the other, enlarged
#   editor (gedit)           xedit, typing and paging
#   card game (freecell)     ace-freecell, moves and undos
#   PDF viewer (kghostview)  mupdf, page by page
#   archiver (tar_gzip)      tar with gzip
# This script generates the inputs from a fixed seed. Programs with windows run under Xvfb, with scripted input.
#
#   eval/craw-traces.sh [-s SCALE] [-r REFERENCES] [-u] [FOLDER [NAME...]]
#
# SCALE multiplies the inputs (2). A program ends when it is done, or has made
# REFERENCES references past the CPU caches (450000). Recording slows it down about a hundred times.
# With -u no caches are modelled: every reference is recorded, for `eval/craw-caches.py`.
# The modelled caches are as small as the programs: 1 % of a footprint is less than a cache of today.
set -euo pipefail

scale=2
references=450000
caches=(--i1 8192,2,64 --d1 8192,2,64 --ll 65536,8,64)
while getopts s:r:u option; do
	case $option in
	s) scale=$OPTARG ;;
	r) references=$OPTARG ;;
	u) caches=(--no-filter) ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
folder=$(realpath -m "${1:-craw-traces}")
[ $# -gt 0 ] && shift
all=(mpg123 feh xedit freecell mupdf tar-gzip)
names=("${@:-${all[@]}}")
flashvm=${FLASHVM:-$(realpath -m "$(dirname "$0")/../target/release/flashvm")}
[ -x "$flashvm" ] || { echo "$flashvm: not there: cargo build --release, or name it in \$FLASHVM" >&2; exit 2; }
for need in valgrind:valgrind mpg123:mpg123 lame:lame feh:feh xedit:x11-apps /usr/games/ace-freecell:ace-of-penguins \
	mupdf:mupdf Xvfb:xvfb xdotool:xdotool python3:python3; do
	command -v "${need%%:*}" >/dev/null || { echo "${need%%:*} is missing: apt install ${need##*:}" >&2; exit 2; }
done
mkdir -p "$folder"
work=$(mktemp -d)
server=
finish() {
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	rm -rf "$work"
}
trap finish EXIT
cd "$work"

# Inputs: a song, pictures, a text, a document, a folder.
python3 - "$scale" <<'PYTHON'
import math, pathlib, random, struct, sys, wave, zlib
scale = int(sys.argv[1])
chance = random.Random(1)
words = [''.join(chance.choices('etaoinshrdlucmfwyp', k=chance.randint(2, 9))) for _ in range(2000)]
text = lambda count: ' '.join(chance.choices(words, k=count))

with wave.open('song.wav', 'wb') as song:
    song.setparams((2, 2, 44100, 0, 'NONE', ''))
    frames = bytearray()
    for at in range(44100 * 6 * scale):
        left = sum(math.sin(at * pitch / 7018.7) for pitch in (440, 554, 659)) + chance.gauss(0, .2)
        frames += struct.pack('<hh', int(6000 * left), int(6000 * left * math.cos(at / 9000)))
    song.writeframes(frames)

def png(path, width, height):
    rows = bytearray()
    hue = [chance.randint(20, 200) for _ in range(3)]
    for y in range(height):
        rows.append(0)
        for x in range(width):
            rows += bytes((c + x * y // 97 + (x ^ y)) % 256 for c in hue)
    chunk = lambda kind, data: struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    header = struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)
    path.write_bytes(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + chunk(b'IDAT', zlib.compress(bytes(rows))) + chunk(b'IEND', b''))

for number in range(5):
    png(pathlib.Path(f'picture{number}.png'), 320 * scale, 240 * scale)

pathlib.Path('letter.txt').write_text('\n'.join(text(10) for _ in range(600 * scale)) + '\n')

objects = ['<< /Type /Catalog /Pages 2 0 R >>', None, '<< /Type /Font /Subtype /Type1 /BaseFont /Times-Roman >>']
pages = []
for _ in range(8 * scale):
    lines = ''.join(f'({text(9)}) Tj T*\n' for _ in range(50))
    stream = f'BT /F1 11 Tf 13 TL 60 780 Td\n{lines}ET\n'
    objects.append(f'<< /Length {len(stream)} >>\nstream\n{stream}endstream')
    objects.append(f'<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {len(objects)} 0 R /Resources << /Font << /F1 3 0 R >> >> >>')
    pages.append(len(objects))
objects[1] = f'<< /Type /Pages /Count {len(pages)} /Kids [{" ".join(f"{page} 0 R" for page in pages)}] >>'
document = '%PDF-1.4\n'
places = []
for number, body in enumerate(objects, 1):
    places.append(len(document))
    document += f'{number} 0 obj\n{body}\nendobj\n'
table = ''.join(f'{place:010} 00000 n \n' for place in places)
document += f'xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(document)}\n%%EOF\n'
pathlib.Path('document.pdf').write_text(document)

files = pathlib.Path('folder')
files.mkdir()
for number in range(40):
    data = text(400 * scale).encode() if number % 4 else chance.randbytes(4000 * scale)
    (files / f'file{number}').write_bytes(data)
PYTHON

display() {
	[ -z "$server" ] || return 0
	Xvfb -displayfd 3 -screen 0 800x600x24 -noreset -nolisten tcp 3>"$work/display" 2>/dev/null &
	server=$!
	until [ -s "$work/display" ]; do sleep 0.1; done
	DISPLAY=:$(cat "$work/display")
	export DISPLAY
}

record() { # NAME PROGRAM ARGS...
	local name=$1
	shift
	# A signal or a key that ends the program is a regular end.
	"$flashvm" trace record --references "$references" "${caches[@]}" -o "$folder/$name.fvt" -- "$@" >"$work/$name.out" 2>&1 || true
	tail -n 1 "$work/$name.out"
	[ -s "$folder/$name.fvt" ]
}

# Sends keys and clicks to the window of a recorded program, then ends the program.
drive() { # NAME-OF-WINDOW RECORDER KEY...
	local window recorder=$2 name=$1
	shift 2
	until window=$(xdotool search --onlyvisible --name "$name" 2>/dev/null | tail -n 1) && [ -n "$window" ]; do
		kill -0 "$recorder" 2>/dev/null || return 0
		sleep 1
	done
	local rounds=0
	while kill -0 "$recorder" 2>/dev/null && [ $rounds -lt $((6 * scale)) ]; do
		for key in "$@"; do
			case $key in
			*,*) xdotool mousemove --window "$window" "${key%,*}" "${key#*,}" click 1 ;;
			*) xdotool windowfocus "$window" key "$key" ;;
			esac 2>/dev/null || true
			sleep 0.7
		done
		rounds=$((rounds + 1))
	done
	pkill -TERM -P "$recorder" || true
}

window() { # NAME TITLE "KEYS" PROGRAM ARGS...
	local name=$1 title=$2 keys=$3 recorder
	shift 3
	display
	record "$name" "$@" &
	recorder=$!
	# shellcheck disable=SC2086 # the keys are words
	drive "$title" "$recorder" $keys
	wait "$recorder"
}

for name in "${names[@]}"; do
	case $name in
	mpg123)
		lame --quiet -b 128 song.wav song.mp3
		record mpg123 mpg123 -q -w song.out.wav song.mp3
		;;
	feh) window feh '^feh' 'Right Up Up Right Down' feh --geometry 640x480 picture0.png picture1.png picture2.png picture3.png picture4.png ;;
	xedit) window xedit '[Xx]edit|letter' 'Next Next t h e space e n d Return Prior Down Down BackSpace' xedit letter.txt ;;
	freecell) window freecell '[Ff]ree' '60,250 340,60 140,250 60,250 u u 220,250 300,250 380,250' /usr/games/ace-freecell ;;
	mupdf) window mupdf 'document' 'space space plus space minus b' mupdf document.pdf ;;
	tar-gzip) record tar-gzip tar -czf folder.tar.gz folder ;;
	*)
		echo "unknown program '$name': known are ${all[*]}" >&2
		exit 2
		;;
	esac
done
