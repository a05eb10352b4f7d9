// Fills a Map with objects, reads it back in order and by jumps, prints checksums. usage: map.js ENTRIES
const entries = Number(process.argv[2]);
const map = new Map();
for (let i = 0; i < entries; i++) map.set('key ' + i, { number: i, text: 'value ' + ((i * 7919) % 1000003) });
let inOrder = 0;
for (const [key, value] of map) inOrder = (inOrder * 31 + value.number + key.length + value.text.length) | 0;
let jumping = 0;
for (let i = 0; i < entries / 4; i++) {
	const at = (i * 104729) % entries;
	const value = map.get('key ' + at);
	if (value.number !== at || value.text !== 'value ' + ((at * 7919) % 1000003)) {
		console.error('map.js: wrong value at ' + at + ': ' + JSON.stringify(value));
		process.exit(1);
	}
	jumping = (jumping * 31 + value.text.length + value.number) | 0;
}
console.log(map.size, inOrder, jumping);
