"""Writes the input files of this task. Usage: python3 data.py OUT_DIR [SEED]. Standard library only.

What is hidden in the data (never shown to the team):
- The score of day d is known two trading days later and contains the return of day d itself: joined by `date` it
  looks like a strong signal. Used from `published` on, it predicts the next day's return in one sector only.
- One share splits 10:1 without adjustment, two shares leave the sample early, 1% of the closes are missing.
- Spreads are basis points; in the widest ones the effect does not pay.
"""
import csv
import datetime
import os
import random
import sys

DAYS, ASSETS, LAG = 500, 24, 2
SECTORS = ("technology", "energy", "retail")


def trading_days(count):
    day, days = datetime.date(2021, 1, 4), []
    while len(days) < count:
        if day.weekday() < 5:
            days.append(day.isoformat())
        day += datetime.timedelta(days=1)
    return days


def write(folder, name, header, rows):
    with open(os.path.join(folder, name), "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def main(folder, seed):
    rng = random.Random(seed)
    days = trading_days(DAYS + LAG)
    market = [rng.gauss(0.0003, 0.010) for _ in range(DAYS)]
    prices, scores, assets = [], [], []
    for number in range(ASSETS):
        asset, sector = f"S{number + 1:02d}", SECTORS[number % 3]
        beta = 0.7 + 0.6 * rng.random()
        spread = 2 + 23 * rng.random() ** 2
        assets.append((asset, sector, f"{spread:.1f}"))
        last = DAYS if number not in (5, 16) else 300 + 40 * (number == 16)
        close, latent = 20 + 80 * rng.random(), []
        for t in range(last):
            latent.append(0.5 * (latent[-1] if latent else 0.0) + 0.87 * rng.gauss(0, 1))
            edge = 0.0016 if sector == "technology" else 0.0
            # Known after the close of day t-1: the score that describes day t-1-LAG.
            drift = edge * latent[t - 1 - LAG] if t > LAG else 0.0
            change = beta * market[t] + drift + rng.gauss(0, 0.012)
            close *= 1 + change
            if number == 6 and t == 222:
                close /= 10
            if rng.random() > 0.01:
                prices.append((days[t], asset, f"{close:.4f}"))
            else:
                prices.append((days[t], asset, ""))
            score = latent[t] + 60 * change
            scores.append((days[t], days[t + LAG], asset, f"{score:.3f}"))
    write(folder, "prices.csv", ("date", "asset", "close"), sorted(prices))
    write(folder, "scores.csv", ("date", "published", "asset", "score"), sorted(scores))
    write(folder, "assets.csv", ("asset", "sector", "half_spread_bps"), assets)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4107)
