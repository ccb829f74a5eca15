/** The timeline: stores and draws the data of its host, and handles pointer and keys. */

import type { ThreadState, Timeline } from './data';
import { described } from './describe';
import { draw } from './draw';
import {
  type Chosen,
  type Direction,
  type Hit,
  LEVEL,
  RULER,
  type Track,
  firstChosen,
  heightOf,
  hit,
  namesWidth,
  neighbor,
  tracks,
} from './layout';
import { widestName } from './labels';
import { legend, statesOf } from './legend';
import type { FromPage, ToPage } from './messages';
import { paint } from './paint';
import { type Span, bounds, pan, show, stillAt, formatTime, within, zoom } from './window';

/** The abilities that differ between hosts. */
export interface TimelineOptions {
  /** Whether the wheel zooms only with the control key, so that it scrolls the page around. */
  wheelNeedsControl?: boolean;
}

/** The window is requested when it has not changed for this time, in milliseconds. */
const STILL = 60;

const NOTICES = {
  closed: 'The threads of a trace on one clock, as soon as one is open.',
  decoding: 'Older history is being decoded: the timeline comes as soon as it is.',
  open: 'Reading the trace…',
};

/**
 * Shows a timeline in the elements `stage`, `canvas`, `tip`, `notice`, `legend` and `spoken` of the
 * document. Returns the function that takes the host's messages.
 */
export function mount(post: (message: FromPage) => void, options: TimelineOptions = {}): (message: ToPage) => void {
  const element = <Kind extends HTMLElement>(id: string) => document.getElementById(id) as Kind;
  const stage = element<HTMLDivElement>('stage');
  const canvas = element<HTMLCanvasElement>('canvas');
  const context = canvas.getContext('2d') as CanvasRenderingContext2D;
  const tip = element<HTMLDivElement>('tip');
  const notice = element<HTMLDivElement>('notice');
  const spoken = element<HTMLDivElement>('spoken');

  let colors = paint();
  let timeline: Timeline | undefined;
  let all: readonly Track[] = [];
  let span: Span | undefined;
  let scroll = 0;
  let chosen: Chosen | undefined;
  /** The states in the legend. */
  let shownStates: readonly ThreadState[] = [];
  let request = 0;
  /** The request whose response is shown. */
  let answered = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let frame = 0;
  /** Whether the window follows the position, until the user moves the window. */
  let follows = false;
  /** The call to select after its part of the trace is loaded. */
  let wanted: { threadId: number; time: number } | undefined;

  /** The width of the widest name of the threads. */
  let widest = 0;
  const names = () => namesWidth(stage.clientWidth, widest);
  const inner = () => Math.max(stage.clientWidth - names(), 1);
  const limits = (of: Timeline) => bounds(of.begin, of.end);

  /** Requests the window and half of its length on both sides, for panning. */
  function want(delay: number): void {
    clearTimeout(timer);
    timer = setTimeout(() => {
      request += 1;
      const width = Math.min(inner(), 4096);
      if (span === undefined || timeline === undefined) {
        post({ type: 'want', request, width });
        return;
      }
      const half = (span.to - span.from) / 2;
      const from = Math.max(Math.floor(span.from - half), timeline.begin);
      const to = Math.min(Math.ceil(span.to + half), timeline.end);
      const columns = Math.max(1, Math.round((width * (to - from)) / (span.to - span.from)));
      post({ type: 'want', request, from, to: Math.max(to, from + 1), width: columns });
    }, delay);
  }

  function redraw(): void {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      const scale = window.devicePixelRatio || 1;
      const width = stage.clientWidth;
      const height = stage.clientHeight;
      if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
        canvas.width = Math.round(width * scale);
        canvas.height = Math.round(height * scale);
      }
      context.setTransform(scale, 0, 0, scale, 0, 0);
      if (timeline === undefined || span === undefined) {
        context.clearRect(0, 0, width, height);
      } else {
        draw(context, { timeline, tracks: all, span, names: names(), scroll, chosen, width, height }, colors);
      }
    });
  }

  function setSpan(next: Span): void {
    span = next;
    want(STILL);
    redraw();
  }

  function setScroll(next: number): void {
    const most = Math.max(0, heightOf(all) + 12 - (stage.clientHeight - RULER));
    scroll = Math.min(Math.max(next, 0), most);
    redraw();
  }

  function take(next: Timeline, isNewest: boolean): void {
    const before = timeline;
    timeline = next;
    all = tracks(next);
    context.font = colors.font;
    widest = widestName(next.threads, (text) => context.measureText(text).width);
    const sawAll = span === undefined || before === undefined || span.to - span.from >= (before.end - before.begin);
    if (span === undefined || sawAll) {
      // A window of the whole trace stays so when more of it is decoded.
      span = limits(next);
    }
    span = within(span, limits(next));
    if (before === undefined) {
      scrollTo(all.find(({ thread }) => thread.current)?.top);
    }
    if (follows && isNewest && next.here !== undefined) {
      const moved = show(span, { from: next.here.at, to: next.here.at }, limits(next));
      if (moved.from !== span.from) {
        span = moved;
        want(0);
      }
      scrollTo(all.find(({ thread }) => thread.threadId === next.here?.threadId)?.top);
      follows = false;
    }
    if (wanted !== undefined && isNewest) {
      choose(firstChosen(all, wanted.threadId, wanted.time));
      wanted = undefined;
    }
    setScroll(scroll);
    notice.hidden = true;
    explain(statesOf(next));
    redraw();
  }

  /** Adds states to the legend. Those of other windows stay, so that it does not flicker. */
  function explain(states: readonly ThreadState[]): void {
    const union = [...new Set([...shownStates, ...states])];
    if (union.length > shownStates.length) {
      shownStates = union;
      legend(shownStates, colors);
    }
  }

  function scrollTo(top: number | undefined): void {
    const seen = stage.clientHeight - RULER;
    if (top !== undefined && (top < scroll || top + 2 * LEVEL > scroll + seen)) {
      setScroll(top - seen / 3);
    }
  }

  // Tooltip text, also for screen readers.

  function say(text: string): void {
    spoken.textContent = text;
  }

  function choose(next: Chosen | undefined): void {
    chosen = next;
    if (next === undefined || timeline === undefined || span === undefined) {
      redraw();
      return;
    }
    const track = all.find(({ thread }) => thread.threadId === next.threadId);
    const call = track?.thread.calls.find(({ position, level }) => position === next.position && level === next.level);
    if (track !== undefined && call !== undefined) {
      say(`${described({ kind: 'call', track, call }, timeline).replaceAll('\n', ', ')}. Enter goes there.`);
      scrollTo(track.calls + next.level * LEVEL);
    }
    const shown = show(span, next, limits(timeline));
    if (shown.from !== span.from) {
      setSpan(shown);
    }
    redraw();
  }

  // Pointer events.

  let drag: { x: number; y: number; span: Span; scroll: number; moved: boolean } | undefined;

  function under(event: PointerEvent | WheelEvent): Hit | undefined {
    const x = event.offsetX - names();
    const y = event.offsetY - RULER;
    return span === undefined || y < 0 ? undefined : hit(all, x, y + scroll, span, inner());
  }

  canvas.addEventListener('pointerdown', (event) => {
    if (span !== undefined && event.button === 0) {
      drag = { x: event.clientX, y: event.clientY, span, scroll, moved: false };
      canvas.setPointerCapture(event.pointerId);
    }
  });

  canvas.addEventListener('pointermove', (event) => {
    if (drag !== undefined && timeline !== undefined) {
      const dx = event.clientX - drag.x;
      const dy = event.clientY - drag.y;
      if (drag.moved || Math.hypot(dx, dy) > 4) {
        drag.moved = true;
        tip.hidden = true;
        canvas.style.cursor = 'grabbing';
        setSpan(pan(drag.span, -dx / inner(), limits(timeline)));
        setScroll(drag.scroll - dy);
      }
      return;
    }
    const found = under(event);
    canvas.style.cursor = found?.kind === 'call' ? 'pointer' : 'default';
    tip.hidden = found === undefined;
    if (found !== undefined) {
      tip.textContent = timeline === undefined ? '' : described(found, timeline);
      const left = Math.min(event.offsetX + 12, stage.clientWidth - tip.offsetWidth - 4);
      const below = event.offsetY + 18;
      const fits = below + tip.offsetHeight < stage.clientHeight;
      tip.style.left = `${Math.max(left, 0)}px`;
      tip.style.top = `${fits ? below : Math.max(event.offsetY - tip.offsetHeight - 8, 0)}px`;
    }
  });

  canvas.addEventListener('pointerup', (event) => {
    const ended = drag;
    drag = undefined;
    canvas.style.cursor = 'default';
    const found = under(event);
    if (ended !== undefined && !ended.moved && found?.kind === 'call') {
      const { call, track } = found;
      choose({ threadId: track.thread.threadId, position: call.position, level: call.level, from: call.from, to: call.to });
      post({ type: 'goto', to: call.position });
    }
  });

  canvas.addEventListener('pointercancel', () => (drag = undefined));
  canvas.addEventListener('pointerleave', () => (tip.hidden = true));

  canvas.addEventListener(
    'wheel',
    (event) => {
      if (options.wheelNeedsControl === true && !event.ctrlKey && !event.metaKey) {
        return;
      }
      event.preventDefault();
      if (span === undefined || timeline === undefined) {
        return;
      }
      tip.hidden = true;
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
      const down = event.deltaY * lines;
      if (event.altKey || event.offsetX < names()) {
        setScroll(scroll + down);
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        setSpan(pan(span, (event.deltaX * lines || down) / inner(), limits(timeline)));
      } else {
        const factor = Math.exp(Math.min(Math.max(down, -300), 300) / 400);
        setSpan(zoom(span, (event.offsetX - names()) / inner(), factor, limits(timeline)));
      }
    },
    { passive: false },
  );

  // Key events.

  function zoomBy(factor: number): void {
    if (span === undefined || timeline === undefined) {
      return;
    }
    setSpan(zoom(span, stillAt(span, chosen, timeline.here?.at), factor, limits(timeline)));
    say(`The window is ${formatTime(span.to - span.from, timeline.unit)} long.`);
  }

  function lookHere(): void {
    if (timeline?.here !== undefined && span !== undefined) {
      const { at, threadId } = timeline.here;
      setSpan(show(span, { from: at, to: at }, limits(timeline)));
      scrollTo(all.find(({ thread }) => thread.threadId === threadId)?.top);
      wanted = { threadId, time: at };
      say(`The position is at ${formatTime(at, timeline.unit)}.`);
    }
  }

  function lookAt(end: 'begin' | 'end'): void {
    if (timeline !== undefined && span !== undefined) {
      const time = timeline[end];
      setSpan(within({ from: time - (span.to - span.from) / 2, to: time + (span.to - span.from) / 2 }, limits(timeline)));
      say(`The ${end === 'begin' ? 'beginning' : 'end'} of the trace, ${formatTime(time, timeline.unit)}.`);
    }
  }

  function arrow(direction: Direction): void {
    if (timeline === undefined || span === undefined) {
      return;
    }
    if (chosen === undefined) {
      const threadId = timeline.here?.threadId;
      const at = timeline.here?.at;
      const time = at !== undefined && at >= span.from && at <= span.to ? at : (span.from + span.to) / 2;
      choose(firstChosen(all, threadId, time));
      return;
    }
    const next = neighbor(all, chosen, direction);
    if (next !== undefined) {
      choose(next);
    } else if (direction === 'left' || direction === 'right') {
      setSpan(pan(span, direction === 'left' ? -0.25 : 0.25, limits(timeline)));
      say('No more calls here: the window is moved.');
    } else {
      say('No call there.');
    }
  }

  const KEYS: Record<string, () => void> = {
    ArrowLeft: () => arrow('left'),
    ArrowRight: () => arrow('right'),
    ArrowUp: () => arrow('up'),
    ArrowDown: () => arrow('down'),
    '+': () => zoomBy(0.5),
    '=': () => zoomBy(0.5),
    '-': () => zoomBy(2),
    0: () => timeline && setSpan(limits(timeline)),
    Home: () => lookAt('begin'),
    End: () => lookAt('end'),
    h: lookHere,
    PageUp: () => setScroll(scroll - stage.clientHeight / 2),
    PageDown: () => setScroll(scroll + stage.clientHeight / 2),
    Enter: () => chosen && post({ type: 'goto', to: chosen.position }),
    Escape: () => choose(undefined),
  };

  canvas.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const isArrow = event.key === 'ArrowLeft' || event.key === 'ArrowRight';
    if (event.shiftKey && isArrow && span !== undefined && timeline !== undefined) {
      setSpan(pan(span, event.key === 'ArrowLeft' ? -0.1 : 0.1, limits(timeline)));
    } else {
      const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (act === undefined) {
        return;
      }
      act();
    }
    event.preventDefault();
    event.stopPropagation();
  });

  canvas.addEventListener('focus', () => {
    const current = all.find(({ thread }) => thread.current)?.thread;
    say(`Timeline with ${all.length} thread${all.length === 1 ? '' : 's'}${current === undefined ? '' : `, now in thread ${current.threadId} ${current.name}`}.`);
  });

  // Messages from the host.

  function receive(data: ToPage): void {
    switch (data.type) {
      case 'reset':
        timeline = undefined;
        span = undefined;
        chosen = undefined;
        all = [];
        shownStates = [];
        legend(shownStates, colors);
        scroll = 0;
        follows = false;
        notice.hidden = false;
        notice.textContent = NOTICES[data.state];
        if (data.state === 'open') {
          want(0);
        }
        redraw();
        break;
      case 'data':
        // An older response is shown until the newest arrives.
        if (data.request > answered) {
          answered = data.request;
          take(data.timeline, data.request === request);
        }
        break;
      case 'failed':
        if (data.request === request) {
          timeline = undefined;
          notice.hidden = false;
          notice.textContent = data.text;
          redraw();
        }
        break;
      case 'moved':
        follows = true;
        want(0);
        break;
      case 'command':
        ({ zoomIn: () => zoomBy(0.5), zoomOut: () => zoomBy(2), fit: () => timeline && setSpan(limits(timeline)), here: lookHere })[data.command]();
        break;
    }
  }

  new ResizeObserver(() => {
    want(STILL);
    setScroll(scroll);
  }).observe(stage);
  const repaint = () => {
    colors = paint();
    legend(shownStates, colors);
    redraw();
  };
  const themes = new MutationObserver(repaint);
  themes.observe(document.body, { attributeFilter: ['class', 'data-vscode-theme-id'] });
  themes.observe(document.documentElement, { attributeFilter: ['data-theme'] });
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
  return receive;
}
