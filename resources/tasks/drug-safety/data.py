"""Writes the input files of this task. Usage: python3 data.py OUT_DIR [SEED]. Standard library only.

What is hidden in the data (never shown to the team):
- Confounding by indication: frail kidneys (high baseline creatinine, diabetes, age) get drug B. Within strata B
  protects (log odds -0.45); crudely it seems to harm.
- Two wards report umol/L, one of them weighs in pounds. Baseline creatinine is missing more often in ward 4.
- Creatinine after day 0 rises because of the injury: adjusting for it, or for the peak, hides the effect.
"""
import csv
import math
import os
import random
import sys

PATIENTS = 1800
TO_UMOL = 88.4


def logistic(x):
    return 1 / (1 + math.exp(-x))


def write(folder, name, header, rows):
    with open(os.path.join(folder, name), "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def main(folder, seed):
    rng = random.Random(seed)
    patients, labs, outcomes = [], [], []
    for number in range(1, PATIENTS + 1):
        ward = 1 + int(4 * rng.random())
        age = min(95, max(21, round(rng.gauss(63, 13))))
        sex = "F" if rng.random() < 0.48 else "M"
        diabetes = int(rng.random() < logistic((age - 68) / 15 - 0.6))
        creatinine = math.exp(rng.gauss(-0.02, 0.22) + 0.18 * diabetes + 0.006 * (age - 63))
        frailty = 2.6 * (creatinine - 1.05) + 0.7 * diabetes + 0.02 * (age - 63)
        drug = "B" if rng.random() < logistic(1.3 * frailty - 0.35) else "A"
        risk = logistic(-2.35 + 1.25 * frailty - 0.45 * (drug == "B"))
        injury = int(rng.random() < risk)
        followed = 30 if rng.random() < 0.93 else 5 + int(25 * rng.random())
        injury_day = 2 + int(12 * rng.random())
        if injury and injury_day > followed:
            injury = 0
        kilograms = max(42, rng.gauss(79 if sex == "M" else 68, 13))
        pounds = ward == 3
        weight = "" if rng.random() < 0.04 else f"{kilograms * (2.2046 if pounds else 1):.1f}"
        patients.append((number, age, sex, weight, "lb" if pounds else "kg", diabetes, ward, drug))
        umol = ward in (3, 4)
        for day in (0, 3, 7, 14):
            if day > followed:
                continue
            if day == 0 and rng.random() < (0.22 if ward == 4 else 0.05):
                continue
            rise = 1.7 if injury and day >= injury_day else 1.0
            value = creatinine * rise * math.exp(rng.gauss(0, 0.05))
            labs.append((number, day, f"{value * (TO_UMOL if umol else 1):.2f}", "umol/L" if umol else "mg/dL"))
        outcomes.append((number, injury, injury_day if injury else "", followed))
    write(folder, "patients.csv", ("patient", "age", "sex", "weight", "weight_unit", "diabetes", "ward", "drug"), patients)
    write(folder, "labs.csv", ("patient", "day", "creatinine", "unit"), labs)
    write(folder, "outcomes.csv", ("patient", "injury", "injury_day", "followed_days"), outcomes)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 9213)
