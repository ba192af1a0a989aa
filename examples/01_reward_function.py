"""A reward is a function: here, answers of one short sentence. Run it with: python examples/01_reward_function.py"""

import prefrl


def one_short_sentence(text: str) -> float:
    """1 for a single sentence, minus a hundredth for every character."""
    return float(text.count(".") == 1 and text.endswith(".")) - 0.01 * len(text)


THINGS = ["rain", "bread", "a clock", "the moon", "a bicycle", "salt", "a mirror", "snow", "glass", "a lighthouse"]

if __name__ == "__main__":
    policy = prefrl.load("smollm2-135m", lora=8)
    run = prefrl.optimize(
        policy,
        [f"What is {thing}?" for thing in THINGS],
        one_short_sentence,
        algorithm="dr_grpo",
        steps=10,
        prompts_per_step=4,
        max_new_tokens=32,
        lr=1e-4,
        output="runs/one-short-sentence",
    )
    run.report()
