"""What the finished models do, measured on stories held out from training.

    python -m training.check --model DIR --before DIR --prm DIR

Samples at temperature 1: accuracy under every protocol, how many statements can be read, what is
stated about right and wrong answers, how far the reasoning moved from the checkpoint before the
confidence stage, and what the reward model says about the samples.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from divtok.evidence.prm import RewardModel, load_prm
from divtok.problems.arithmetic import LEVELS, Difficulty, Story, stories
from divtok.protocols.prompts import CONFIDENCE_QUESTION, messages_for
from training.confidences import NO_CANDIDATE, VERBALIZED
from training.sampling import sample_ids
from training.tokenizer import TURN_END, read_tokenizer, render_chat

SEED = 77
CHUNK = 400  # responses sampled together
MOST_NEW_TOKENS = 600
DRIFT_CASES = 150
UNREAD = 3  # responses shown of those whose statement cannot be read
FOLLOW_UP = f"{TURN_END}\n" + render_chat([{"role": "user", "content": CONFIDENCE_QUESTION}])


def held_out(difficulty: Difficulty, count: int) -> list[Story]:
    return list(islice(stories(SEED, "test", [LEVELS[difficulty]]), count))


def load(folder: Path, device: str) -> Any:
    import torch
    from transformers import Qwen2ForCausalLM

    model: Any = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.to(device).eval().requires_grad_(False)


def sample(model: Any, tokenizer: Any, prompts: Sequence[str]) -> list[str]:
    """One response to each rendered prompt, at temperature 1, its end token cut off if it came."""
    return [
        text
        for start in range(0, len(prompts), CHUNK)
        for text in _texts(
            tokenizer,
            sample_ids(
                model,
                tokenizer,
                prompts[start : start + CHUNK],
                seed=SEED,
                most_new_tokens=MOST_NEW_TOKENS,
            ),
        )
    ]


def _texts(tokenizer: Any, rows: Sequence[Any]) -> list[str]:
    texts = tokenizer.batch_decode(rows, skip_special_tokens=False)
    return [text.partition(TURN_END)[0] for text in texts]


def boxed(text: str) -> str | None:
    found = re.findall(r"\\boxed\{([^{}]*)\}", text)
    return found[-1] if found else None


def read_rating(reply: str) -> float | None:
    """Strict on purpose: exactly the form that was taught, from 0 to 10."""
    match = re.fullmatch(r"\\boxed\{(\d+)\}", reply)
    return int(match[1]) / 10 if match and int(match[1]) <= 10 else None


def read_json(response: str, protocol: str) -> tuple[str, float] | None:
    """(answer, confidence) of the last line, or None where it is not what the protocol asks for."""
    try:
        stated: Any = json.loads(response.rpartition("\n")[2])
        if protocol == "verbalized":
            return stated["final_answer"], float(stated["confidence"])
        pairs = [(entry["candidate"], float(entry["confidence"])) for entry in stated]
    except (ValueError, KeyError, TypeError):
        return None
    if protocol == "verbalized_distribution":
        if pairs[-1][0] != NO_CANDIDATE or abs(sum(c for _, c in pairs) - 1) > 1e-9:
            return None
        pairs.pop()
    return max(pairs, key=lambda pair: pair[1]) if pairs else None


def summary(
    right: Sequence[bool], stated: Sequence[float | None], texts: Sequence[str]
) -> dict[str, Any]:
    read = [(r, s) for r, s in zip(right, stated, strict=True) if s is not None]
    good, bad = ([s for r, s in read if r is kind] for kind in (True, False))
    return {
        "n": len(right),
        "accuracy": round(float(np.mean(right)), 3),
        "read": round(len(read) / len(right), 4),
        "stated_right": round(float(np.mean(good)), 3),
        "stated_wrong": round(float(np.mean(bad)), 3),
        "auroc": round(auroc(good, bad), 3),
        "unread": [t[-120:] for t, s in zip(texts, stated, strict=True) if s is None][:UNREAD],
    }


def auroc(good: Sequence[float], bad: Sequence[float]) -> float:
    a, b = np.asarray(good)[:, None], np.asarray(bad)[None, :]
    return float(((a > b) + 0.5 * (a == b)).mean())


def drift_bits(model: Any, before: Any, tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> float:
    """Mean JSD in bits per response token of two models, along (prompt, response) texts."""
    import torch

    total, count = 0.0, 0
    for prompt, response in pairs:
        start = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
        whole = tokenizer(prompt + response + TURN_END, add_special_tokens=False)["input_ids"]
        ids = torch.tensor([whole], device=model.device)
        with torch.inference_mode():
            p, q = (
                torch.softmax(m(input_ids=ids).logits[0, start - 1 : -1].double(), dim=-1)
                for m in (model, before)
            )
        mixture = (p + q) / 2
        jsd = sum(torch.xlogy(x, x / mixture).nan_to_num().sum() for x in (p, q)) / 2
        total, count = total + float(jsd) / float(np.log(2)), count + len(p)
    return total / count


def line_labels(story: Story, response: str) -> list[int]:
    """For each line of a response, whether all is right up to there: the story's own numbers."""
    wanted = [sorted((e.left, e.right, e.result)) for e in story.equations] + [[story.answer]]
    labels: list[int] = []
    for line, text in enumerate(response.split("\n")):
        numbers = sorted(int(n) for n in re.findall(r"\d+", text))
        right = line < len(wanted) and numbers == wanted[line]
        labels.append(int(right and all(labels)))
    return labels


def check_rewards(
    prm: RewardModel, cases: Sequence[tuple[str, str, Sequence[int]]]
) -> dict[str, Any]:
    """Accuracy at 0.5 by line; AUROC by response of the mean, the least and the last reward."""
    given = prm.rewards([(str(n), question, text) for n, (question, text, _) in enumerate(cases)])
    hits: list[bool] = []
    by_response: dict[bool, list[Any]] = {True: [], False: []}
    for (_, _, labels), step in zip(cases, given, strict=True):
        if step.reason is None:
            wanted = np.asarray(labels, dtype=bool)
            hits += ((step.rewards > 0.5) == wanted).tolist()
            by_response[bool(wanted[-1])].append(step.rewards)
    found: dict[str, Any] = {
        "n": len(cases),
        "right": len(by_response[True]),
        "line_accuracy": round(float(np.mean(hits)), 4),
    }
    for name, reduce in (("mean", np.mean), ("least", np.min), ("last", _last)):
        good, bad = ([float(reduce(r)) for r in by_response[kind]] for kind in (True, False))
        found[f"auroc_{name}"] = round(auroc(good, bad), 4)
        found[f"mean_{name}"] = [round(float(np.mean(x)), 3) for x in (good, bad)]
    return found


def _last(rewards: Sequence[float]) -> float:
    return rewards[-1]


def _wrote(story: Story, answer: str | None) -> bool:
    return answer == str(story.answer)


def check_model(
    folder: Path, before: Path, prm: RewardModel | None, *, count: int, device: str
) -> dict[str, Any]:
    tokenizer = read_tokenizer(folder)
    model, old = load(folder, device), load(before, device)
    found: dict[str, Any] = {}
    for difficulty in ("easy", "contest"):
        cases = held_out(difficulty, count)
        prompts = [render_chat(messages_for(story.question)) for story in cases]
        was = sample(old, tokenizer, prompts)
        now = sample(model, tokenizer, prompts)
        right = [_wrote(s, boxed(text)) for s, text in zip(cases, now, strict=True)]
        replies = sample(
            model, tokenizer, [p + r + FOLLOW_UP for p, r in zip(prompts, now, strict=True)]
        )
        old_right = [_wrote(s, boxed(text)) for s, text in zip(cases, was, strict=True)]
        report: dict[str, Any] = {
            "accuracy_before": round(float(np.mean(old_right)), 3),
            "cot, then rated": summary(right, [read_rating(reply) for reply in replies], replies),
            "drift_bits": drift_bits(
                model, old, tokenizer, list(zip(prompts, was, strict=True))[:DRIFT_CASES]
            ),
        }
        if prm is not None:
            read = [(s.question, r, line_labels(s, r)) for s, r in zip(cases, now, strict=True)]
            report["rewards"] = check_rewards(prm, read)
        for protocol in VERBALIZED:
            asked = [
                render_chat(messages_for(story.question, protocol=protocol)) for story in cases
            ]
            responses = sample(model, tokenizer, asked)
            answers = [read_json(response, protocol) for response in responses]
            hits = [_wrote(s, a and a[0]) for s, a in zip(cases, answers, strict=True)]
            report[protocol] = summary(hits, [a and a[1] for a in answers], responses)
        found[difficulty] = report
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--prm", type=Path)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    results = check_model(
        arguments.model,
        arguments.before,
        load_prm(str(arguments.prm), device=arguments.device) if arguments.prm else None,
        count=arguments.count,
        device=arguments.device,
    )
    print(json.dumps({arguments.model.name: results}, indent=1))
