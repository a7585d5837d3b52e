"""Data in the form that Horovod's published Spark examples download: digits as libsvm text, and a shop's sales with
what they are joined with. Small, and made here."""

from __future__ import annotations

import bz2
import csv
import datetime
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np

FIRST, LAST = datetime.date(2014, 6, 20), datetime.date(2015, 10, 30)  # of weather and of what people look for
STATES = {"Hessen": "HE", "Berlin": "BE"}
WEATHER = (
    "file,Date,Max_TemperatureC,Mean_TemperatureC,Min_TemperatureC,Max_Humidity,Mean_Humidity,Min_Humidity,"
    "Max_Wind_SpeedKm_h,Mean_Wind_SpeedKm_h,CloudCover,Events"
)


def digits(folder: Path, rows: int = 1500) -> None:
    """`mnist.bz2`: each class has pixels of its own that are on, nine times in ten."""
    chance = np.random.default_rng(0)
    on = chance.random((10, 784)) < 0.15
    lines = []
    for i in range(rows):
        pixels = np.flatnonzero(on[i % 10] & (chance.random(784) < 0.9))
        lines.append(f"{i % 10} " + " ".join(f"{p + 1}:1" for p in pixels))
    with bz2.open(folder / "mnist.bz2", "wt") as f:
        f.write("\n".join(lines) + "\n")


def days(first: datetime.date, last: datetime.date) -> Iterator[datetime.date]:
    """Each day from the first to the last."""
    for n in range((last - first).days + 1):
        yield first + datetime.timedelta(n)


def sales(folder: Path) -> None:
    """The seven tables of the Rossmann examples."""
    chance = random.Random(1)

    def write(name: str, head: str, rows: list[list[object]]) -> None:
        with (folder / name).open("w", newline="") as f:
            csv.writer(f).writerows([head.split(","), *rows])

    sold: list[list[object]] = []
    for day in days(datetime.date(2014, 7, 20), datetime.date(2014, 10, 5)):
        for shop in range(1, 5):
            is_open, week = int(day.weekday() != 6), day.isoweekday()
            holiday = chance.choice("0a") if day.day == 1 else "0"
            amount = chance.randint(3000, 9000) * is_open
            sold.append([shop, week, day, amount, 500, is_open, chance.randint(0, 1), holiday, chance.randint(0, 1)])
    write("train.csv", "Store,DayOfWeek,Date,Sales,Customers,Open,Promo,StateHoliday,SchoolHoliday", sold[::-1])
    asked: list[list[object]] = [
        [shop, day.isoweekday(), day, int(day.weekday() != 6), chance.randint(0, 1), "0", chance.randint(0, 1)]
        for day in days(datetime.date(2015, 8, 1), datetime.date(2015, 9, 10))
        for shop in range(1, 5)
    ]
    head = "Id,Store,DayOfWeek,Date,Open,Promo,StateHoliday,SchoolHoliday"
    write("test.csv", head, [[i, *row] for i, row in enumerate(asked[::-1], 1)])
    head = (
        "Store,StoreType,Assortment,CompetitionDistance,CompetitionOpenSinceMonth,CompetitionOpenSinceYear,Promo2,"
        "Promo2SinceWeek,Promo2SinceYear,PromoInterval"
    )
    shops: list[list[object]] = [
        [1, "c", "a", 1270, 9, 2008, 0, "", "", ""], [2, "a", "a", 570, 11, 2007, 1, 13, 2010, "Jan,Apr,Jul,Oct"],
        [3, "a", "c", 14130, 12, 2006, 1, 14, 2011, "Jan,Apr,Jul,Oct"], [4, "d", "a", "", "", "", 0, "", "", ""],
    ]  # fmt: skip
    write("store.csv", head, shops)
    write("store_states.csv", "Store,State", [[1, "HE"], [2, "BE"], [3, "HE"], [4, "BE"]])
    write("state_names.csv", "StateName,State", [list(pair) for pair in STATES.items()])
    weeks: list[list[object]] = []
    for n in range(70):
        day = datetime.date(2014, 6, 29) + datetime.timedelta(7 * n)
        for where in ("Rossmann_DE", "Rossmann_DE_HE", "Rossmann_DE_BE"):
            weeks.append([where, f"{day} - {day + datetime.timedelta(6)}", chance.randint(40, 90)])
    write("googletrend.csv", "file,week,trend", weeks)
    skies: list[list[object]] = [
        [state, day, *[chance.randint(1, 30) for _ in range(9)], chance.choice(["", "Rain", "Fog"])]
        for day in days(FIRST, LAST)
        for state in STATES
    ]
    write("weather.csv", WEATHER, skies)
