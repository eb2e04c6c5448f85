"""Writes schedule.txt: which entry of a schedule is active, minute by minute over years with changes
of the clock, found with Python's zoneinfo by watching the wall clock. Run it in this folder."""

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

# Days (Monday is 0) or a date, time of day, minutes.
ENTRIES = [
    ({0, 1, 2, 3, 4}, "07:00", 60),
    ({5, 6}, "22:30", 240),
    (set(range(7)), "02:30", 45),
    ({6}, "02:00", 30),
    ({6}, "01:45", 120),
    ("{year}-12-24", "18:00", 10080),
]
PLACES = [("Europe/Vienna", 2026), ("America/New_York", 2027), ("Australia/Lord_Howe", 2026)]
MINUTE = timedelta(minutes=1)


def beginnings(zone, year):
    """For each minute the entries that begin: when the clock first shows their time or a later."""
    now = datetime(year - 1, 12, 20, tzinfo=timezone.utc)
    end = datetime(year + 1, 1, 10, tzinfo=timezone.utc)
    shown = now.astimezone(zone).replace(tzinfo=None)
    while now < end:
        now += MINUTE
        wall = now.astimezone(zone).replace(tzinfo=None)
        begun = []
        while shown < wall:
            shown += MINUTE
            for number, (days, time, _) in enumerate(ENTRIES):
                if isinstance(days, str):
                    today = shown.strftime("%Y-%m-%d") == days.format(year=year)
                else:
                    today = shown.weekday() in days
                if today and shown.strftime("%H:%M") == time:
                    begun.append(number)
        yield now, begun


def changes(zone, year):
    """The changes of the active entry within the year."""
    running, last = [], None
    start = datetime(year, 1, 1, tzinfo=timezone.utc)
    end = datetime(year + 1, 1, 1, tzinfo=timezone.utc)
    for now, begun in beginnings(zone, year):
        running += [(now, number) for number in begun]
        running = [(at, n) for at, n in running if now < at + ENTRIES[n][2] * MINUTE]
        active = max(running)[1] if running else None
        if start <= now < end and (active != last or begun):
            yield int((now - start) / MINUTE), "-" if active is None else active
        last = active


with open("schedule.txt", "w") as file:
    for name, year in PLACES:
        print(name, year, file=file)
        print(*(f"{at}:{entry}" for at, entry in changes(ZoneInfo(name), year)), file=file)
