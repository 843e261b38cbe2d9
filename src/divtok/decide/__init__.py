"""What to do with confidences: answer or abstain, ask a larger model, choose among samples.

Knows values, outcomes and names; reads no run and loads no model.
"""
