"""Distilling a small draft from a target's own outputs: generate, train, evaluate.

The three steps are three modules over one folder of work: `generate` samples answers and stores the target's hidden
states, `train` fits a draft to the target's distribution (KL), `evaluate` measures it on prompts that neither saw.
Imports nothing heavy, so that asking for help costs nothing.
"""
