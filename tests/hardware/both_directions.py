#!/usr/bin/env python3
"""Copies between host and card cuda:0 by PyTorch, each way and both at once, to compare with
`stagecoach bench bandwidth duplex`: three times, GB/s by all bytes over the slower direction and by
each direction's own events. Takes 2 GiB of pinned and of card memory, and needs torch.
"""

import time

import torch

CHUNK_BYTES = 256 << 20
CHUNKS = 4
ROUNDS = 8


def memory(**where):
    return torch.empty(CHUNK_BYTES * CHUNKS, dtype=torch.uint8, **where)


HOST = {'up': memory(pin_memory=True), 'down': memory(pin_memory=True)}
CARD = {'up': memory(device='cuda:0'), 'down': memory(device='cuda:0')}
STREAMS = {'up': torch.cuda.Stream(), 'down': torch.cuda.Stream()}


def copy(directions, rounds):
    """Seconds that all took, and the events behind the chunks of each direction."""
    events = {direction: [] for direction in directions}
    torch.cuda.synchronize()
    start = time.perf_counter()
    for turn in range(rounds * CHUNKS):
        chunk = slice(turn % CHUNKS * CHUNK_BYTES, (turn % CHUNKS + 1) * CHUNK_BYTES)
        for direction in directions:
            ends = [CARD[direction][chunk], HOST[direction][chunk]]
            target, source = ends if direction == 'up' else reversed(ends)
            with torch.cuda.stream(STREAMS[direction]):
                target.copy_(source, non_blocking=True)
                events[direction].append(torch.cuda.Event(enable_timing=True))
                events[direction][-1].record()
    torch.cuda.synchronize()
    return time.perf_counter() - start, events


def own_rate(events):
    """Of the chunks between the first event and the last, in GB/s."""
    milliseconds = events[0].elapsed_time(events[-1])
    return CHUNK_BYTES * (len(events) - 1) / milliseconds / 1e6


def main():
    copy(['up', 'down'], 2)
    total = CHUNK_BYTES * CHUNKS * ROUNDS
    for _ in range(3):
        for direction in ('up', 'down'):
            print(f'{direction} alone {total / copy([direction], ROUNDS)[0] / 1e9:.2f}')
        seconds, events = copy(['up', 'down'], ROUNDS)
        up, down = own_rate(events['up']), own_rate(events['down'])
        print(f'both: by bytes over the slower {2 * total / seconds / 1e9:.2f}; '
              f'up {up:.2f}, down {down:.2f}, together {up + down:.2f}')


if __name__ == '__main__':
    main()
