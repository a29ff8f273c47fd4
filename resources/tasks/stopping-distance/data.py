"""Writes the input files of this task. Usage: python3 data.py OUT_DIR [SEED]. Standard library only.

What is hidden in the data (never shown to the team):
- Robots differ in brake quality, so a random split over stops looks far better than one over robots.
- Firmware 2 logs cm/s. brake_temp_c is measured after the stop and gives the braking energy away.
- Heavy loads are driven slowly (payload and speed are confounded); payload is missing mostly on wet floors.
"""
import csv
import math
import os
import random
import sys

ROBOTS, STOPS = 14, 28
FRICTION = {"dry": 0.55, "dusty": 0.42, "wet": 0.30}
GRAVITY = 9.81


def write(folder, name, header, rows):
    with open(os.path.join(folder, name), "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def main(folder, seed):
    rng = random.Random(seed)
    stops, telemetry, number = [], [], 0
    for robot in range(1, ROBOTS + 1):
        firmware = 2 if robot % 3 == 0 else 1
        brake = math.exp(rng.gauss(0, 0.16))
        for _ in range(STOPS):
            number += 1
            surface = ("dry", "dry", "dusty", "wet")[int(4 * rng.random())]
            payload = 120 * rng.random()
            speed = max(0.4, 2.6 - 0.011 * payload + rng.gauss(0, 0.30))
            grip = FRICTION[surface] * brake * (1 - 0.0016 * payload)
            distance = speed * speed / (2 * GRAVITY * grip) * math.exp(rng.gauss(0, 0.07)) + 0.12 * speed
            temperature = 24 + 0.11 * (90 + payload) * speed * speed / 2 + 24 * distance + rng.gauss(0, 1.2)
            missing = rng.random() < (0.30 if surface == "wet" else 0.05)
            load = "" if missing else f"{payload:.1f}"
            stops.append((number, f"R{robot:02d}", firmware, surface, load, f"{temperature:.1f}", f"{distance:.3f}"))
            scale = 100 if firmware == 2 else 1
            for t in range(-500, 501, 100):
                v = speed if t <= 0 else max(0.0, speed - GRAVITY * grip * t / 1000)
                current = 2.1 + 0.05 * payload + 1.3 * v if t <= 0 else 0.4
                measured = max(0.0, v + rng.gauss(0, 0.03))
                telemetry.append((number, t, f"{measured * scale:.3f}", f"{current + rng.gauss(0, 0.15):.2f}"))
    header = ("stop", "robot", "firmware", "surface", "payload_kg", "brake_temp_c", "distance_m")
    write(folder, "stops.csv", header, stops)
    write(folder, "telemetry.csv", ("stop", "t_ms", "speed", "motor_current_a"), telemetry)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3181)
