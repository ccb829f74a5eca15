/** Draws the timeline on its canvas. */

import type { Timeline, TimelineCall } from './data';
import { fitting, threadLabels } from './labels';
import { type Chosen, LEVEL, NAME_SPACE, RULER, STATES, type Track } from './layout';
import { type Span, pixel, ticks, formatTime } from './window';
import { type Paint, callColor, drawState } from './paint';

/** The contents of the canvas. */
export interface Picture {
  timeline: Timeline;
  tracks: readonly Track[];
  span: Span;
  /** The width of the threads' names. */
  names: number;
  /** The scroll offset of the threads. */
  scroll: number;
  chosen: Chosen | undefined;
  /** The size, in CSS pixels. */
  width: number;
  height: number;
}

/** Draws everything; sizes are in CSS pixels. */
export function draw(context: CanvasRenderingContext2D, picture: Picture, with_: Paint): void {
  const { width, height, names } = picture;
  context.clearRect(0, 0, width, height);
  context.font = with_.font;
  context.textBaseline = 'middle';
  const inner = width - names;
  drawRuler(context, picture, inner, with_);

  context.save();
  context.beginPath();
  context.rect(names, RULER, inner, height - RULER);
  context.clip();
  context.translate(names, RULER - picture.scroll);
  for (const track of picture.tracks) {
    if (track.bottom >= picture.scroll && track.top <= picture.scroll + height) {
      drawTrack(context, track, picture, inner, with_);
    }
  }
  context.restore();

  drawNames(context, picture, with_);
  drawMarks(context, picture, inner, with_);
  drawScrollBar(context, picture, with_);
}

function drawRuler(context: CanvasRenderingContext2D, { timeline, span, names, height }: Picture, inner: number, with_: Paint): void {
  const { at, step } = ticks(span, inner, 110);
  context.fillStyle = with_.dim;
  context.strokeStyle = with_.line;
  context.lineWidth = 1;
  for (const time of at) {
    const x = Math.round(names + pixel(time, span, inner)) + 0.5;
    context.beginPath();
    context.moveTo(x, RULER - 5);
    context.lineTo(x, height);
    context.stroke();
    context.fillText(formatTime(time, timeline.unit, step), x + 3, RULER / 2);
  }
  context.fillStyle = with_.background;
  context.fillRect(0, 0, names, RULER);
  context.fillStyle = with_.dim;
  const units = timeline.unit === 'instructions' ? ['instructions'] : ['before the crash', 'to the crash', 'to crash'];
  context.fillText(fitting(units, names - 10, widthIn(context)), 6, RULER / 2);
}

function drawTrack(context: CanvasRenderingContext2D, track: Track, picture: Picture, inner: number, with_: Paint): void {
  const { span } = picture;
  if (!track.thread.timed) {
    context.fillStyle = with_.dim;
    context.fillText('no time stamps', 6, track.top + STATES / 2);
  }
  for (const { state, from, to } of track.thread.states) {
    const x = pixel(from, span, inner);
    const end = pixel(to, span, inner);
    if (end >= 0 && x <= inner) {
      const left = Math.max(x, -2);
      drawState(context, state, left, track.top, Math.max(Math.min(end, inner + 2) - left, 1), STATES, with_);
    }
  }
  for (const call of track.thread.calls) {
    drawCall(context, call, track, picture, inner, with_);
  }
}

function drawCall(context: CanvasRenderingContext2D, call: TimelineCall, track: Track, picture: Picture, inner: number, with_: Paint): void {
  const { span, chosen } = picture;
  const from = pixel(call.from, span, inner);
  const to = pixel(call.to, span, inner);
  const y = track.calls + call.level * LEVEL;
  const visible = y + LEVEL >= picture.scroll && y <= picture.scroll + picture.height;
  if (to < -1 || from > inner + 1 || !visible) {
    return;
  }
  const x = Math.max(from, -2);
  const wide = Math.max(Math.min(to, inner + 2) - x, 1);
  const tall = LEVEL - 2;
  // Code of libraries is gray.
  const isOwn = picture.timeline.libraries?.[call.function] === undefined;
  context.fillStyle = isOwn ? callColor(call.function, with_) : with_.dim;
  context.globalAlpha = call.several ? 0.25 : 0.45;
  context.fillRect(x, y, wide > 2 ? wide - 1 : wide, tall);
  context.globalAlpha = 1;
  if (with_.edge !== undefined && wide > 3) {
    context.strokeStyle = with_.edge;
    context.strokeRect(x + 0.5, y + 0.5, wide - 2, tall - 1);
  }
  if (wide > 30) {
    context.save();
    context.beginPath();
    context.rect(x, y, wide - 3, tall);
    context.clip();
    context.fillStyle = with_.text;
    context.fillText(call.several ? `${call.function} …` : call.function, x + 4, y + tall / 2 + 0.5);
    context.restore();
  }
  const isChosen =
    chosen !== undefined && chosen.threadId === track.thread.threadId && chosen.position === call.position && chosen.level === call.level;
  if (isChosen) {
    context.strokeStyle = with_.focus;
    context.lineWidth = 2;
    context.strokeRect(x, y - 1, Math.max(wide, 3), tall + 2);
    context.lineWidth = 1;
  }
}

function widthIn(context: CanvasRenderingContext2D): (text: string) => number {
  return (text) => context.measureText(text).width;
}

function drawNames(context: CanvasRenderingContext2D, { tracks, scroll, names, height }: Picture, with_: Paint): void {
  context.save();
  context.beginPath();
  context.rect(0, RULER, names - 4, height - RULER);
  context.clip();
  for (const { thread, top } of tracks) {
    const y = RULER + top - scroll + STATES / 2;
    context.fillStyle = thread.current ? with_.text : with_.dim;
    context.fillText(fitting(threadLabels(thread), names - NAME_SPACE, widthIn(context)), 6, y);
  }
  context.restore();
}

/** Draws the marks of the position and the crash. */
function drawMarks(context: CanvasRenderingContext2D, { timeline, tracks, span, names, height, scroll }: Picture, inner: number, with_: Paint): void {
  const line = (at: number, color: string, label: string, dash: number[], row: number) => {
    const x = Math.round(names + pixel(at, span, inner)) + 0.5;
    if (x < names || x > names + inner) {
      return;
    }
    context.strokeStyle = color;
    context.fillStyle = color;
    context.lineWidth = 2;
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(x, row);
    context.lineTo(x, height);
    context.stroke();
    context.setLineDash([]);
    context.lineWidth = 1;
    const wide = context.measureText(label).width;
    context.fillText(label, Math.min(x + 4, names + inner - wide - 4), row + 6);
  };
  const { crash, here } = timeline;
  if (crash !== undefined) {
    line(crash.at, with_.crash, `✕ ${crash.signal}`, [5, 3], height - 12);
    line(crash.at, with_.crash, '', [5, 3], RULER);
  }
  if (here !== undefined) {
    line(here.at, with_.cursor, '', [], 4);
    const x = names + pixel(here.at, span, inner);
    const track = tracks.find(({ thread }) => thread.threadId === here.threadId);
    if (x >= names && x <= names + inner) {
      context.fillStyle = with_.cursor;
      triangle(context, x, 4);
      if (track !== undefined) {
        triangle(context, x, RULER + track.top - scroll - 6);
      }
    }
  }
}

function triangle(context: CanvasRenderingContext2D, x: number, y: number): void {
  context.beginPath();
  context.moveTo(x - 6, y);
  context.lineTo(x + 6, y);
  context.lineTo(x, y + 8);
  context.fill();
}

function drawScrollBar(context: CanvasRenderingContext2D, { tracks, width, height, scroll }: Picture, with_: Paint): void {
  const whole = (tracks.at(-1)?.bottom ?? 0) + 12;
  const seen = height - RULER;
  if (whole > seen) {
    context.fillStyle = with_.dim;
    context.globalAlpha = 0.4;
    context.fillRect(width - 5, RULER + (scroll / whole) * seen, 4, Math.max((seen / whole) * seen, 12));
    context.globalAlpha = 1;
  }
}
