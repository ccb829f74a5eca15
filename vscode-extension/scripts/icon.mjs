// Draws media/icon.png: a trace that turns back, above the bars of a timeline.
import { writeFileSync } from 'node:fs';
import { crc32, deflateSync } from 'node:zlib';

const SIZE = 128;
const SAMPLES = 4;

// Lines with round ends, as [x1, y1, x2, y2, half of the width, color].
const FRONT = [245, 248, 250];
const ACCENT = [255, 176, 59];
const DIM = [96, 125, 154];
const strokes = [
  [96, 30, 50, 30, 6, FRONT],
  [50, 66, 88, 66, 6, FRONT],
  [64, 51, 49, 66, 6, FRONT],
  [64, 81, 49, 66, 6, FRONT],
  [28, 102, 44, 102, 5, DIM],
  [60, 102, 78, 102, 5, DIM],
  [98, 102, 100, 102, 6, ACCENT],
];
// The turn between the two long strokes: left half of a ring.
const turn = { x: 50, y: 48, radius: 18, half: 6 };
const BACK = [27, 52, 77];

function color(x, y) {
  // A square with round corners.
  const inset = Math.hypot(Math.max(0, Math.abs(x - 64) - 42), Math.max(0, Math.abs(y - 64) - 42));
  if (inset > 20) {
    return undefined;
  }
  const fromTurn = Math.abs(Math.hypot(x - turn.x, y - turn.y) - turn.radius);
  if (x <= turn.x && fromTurn <= turn.half) {
    return FRONT;
  }
  for (const [x1, y1, x2, y2, half, ink] of strokes) {
    const length = (x2 - x1) ** 2 + (y2 - y1) ** 2;
    const along = Math.max(0, Math.min(1, ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / (length || 1)));
    if (Math.hypot(x - x1 - along * (x2 - x1), y - y1 - along * (y2 - y1)) <= half) {
      return ink;
    }
  }
  return BACK;
}

function pixel(column, row) {
  const sum = [0, 0, 0];
  let covered = 0;
  for (let sample = 0; sample < SAMPLES * SAMPLES; sample += 1) {
    const x = column + ((sample % SAMPLES) + 0.5) / SAMPLES;
    const y = row + (Math.floor(sample / SAMPLES) + 0.5) / SAMPLES;
    const ink = color(x, y);
    if (ink !== undefined) {
      covered += 1;
      ink.forEach((value, channel) => (sum[channel] += value));
    }
  }
  return [...sum.map((value) => Math.round(value / (covered || 1))), Math.round((255 * covered) / SAMPLES ** 2)];
}

function chunk(kind, data) {
  const body = Buffer.concat([Buffer.from(kind, 'latin1'), data]);
  const framed = Buffer.alloc(body.length + 8);
  framed.writeUInt32BE(data.length, 0);
  body.copy(framed, 4);
  framed.writeUInt32BE(crc32(body), body.length + 4);
  return framed;
}

const rows = Array.from({ length: SIZE }, (_, row) => [0, ...Array.from({ length: SIZE }, (_, column) => pixel(column, row)).flat()]);
const header = Buffer.alloc(13);
header.writeUInt32BE(SIZE, 0);
header.writeUInt32BE(SIZE, 4);
header.set([8, 6], 8);
writeFileSync(
  'media/icon.png',
  Buffer.concat([
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
    chunk('IHDR', header),
    chunk('IDAT', deflateSync(Buffer.from(rows.flat()), { level: 9 })),
    chunk('IEND', Buffer.alloc(0)),
  ]),
);
