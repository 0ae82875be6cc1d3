"""A view answers as a scan would, also where cards are free and CPU or memory is gone."""

import random

from qm_scheduler import view as module
from qm_scheduler.placement import place
from qm_scheduler.pool import Sight
from qm_scheduler.view import Room, View, seat, shape_of
from tests.unit.scheduler.yard import Yard, request

KIND = ("h100", 81_920, ())
NEEDS = [(0, 0), (4, 0), (0, 64), (4, 64), (9, 9)]


def test_nodes_without_cpu_or_memory_are_passed_as_a_scan_passes_them() -> None:
    chance, view = random.Random(1), View()
    names = [f"n{n}" for n in range(3 * module.VAIN_MAX)]
    for _ in range(1_500):
        name, free = chance.choice(names), chance.randrange(9)
        room = Room(name, {KIND: free} if free else {}, chance.randint(-2, 5), chance.randint(-9, 79), b"", b"")
        view.put(seat(name), room if chance.random() < 0.9 else None)
        (cpu, memory), least = chance.choice(NEEDS), chance.randint(1, 8)
        found = [room.node for room in view.best_fit(KIND, least, cpu, memory)]
        fitting = [
            (room.free[KIND], key, room.node)
            for key, room in view.rooms.items()
            if room.free.get(KIND, 0) >= least and room.cpu_milli >= (cpu or -99) and room.memory_mib >= (memory or -99)
        ]
        assert found == [name for _, _, name in sorted(fitting)]
    assert len(view._needs) > 1


def test_a_starved_fleet_is_searched_once() -> None:
    yard = Yard()
    for n in range(2 * module.VAIN_MAX):
        yard.node(f"n{n}", {"h100": 2}, cpu=1)
    free, shape = yard.board.pool.views[Sight.FREE], shape_of(request(cpu=2))
    assert place(free, shape) is None
    asked: list[bytes] = []

    class Watched(dict[bytes, Room]):
        def __getitem__(self, key: bytes) -> Room:
            asked.append(key)
            return super().__getitem__(key)

    free.rooms = Watched(free.rooms)
    assert place(free, shape) is None
    assert asked == []
    yard.node("roomy", {"h100": 2}, cpu=2)
    assert place(free, shape) is not None
    assert len(asked) == 1
