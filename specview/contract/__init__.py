"""The draft–verify contract as checks: one function a clause, each a pure function of what a trace recorded.

Algorithm 1 of Leviathan et al. (arXiv 2211.17192); also Chen et al. (arXiv 2302.01318).
"""

from specview.contract.check import PER_ROUND, TITLES, check, check_run
from specview.contract.report import ClauseReport, Context, Finding, Outcome, RunReport, Violation

__all__ = [
    "PER_ROUND",
    "TITLES",
    "ClauseReport",
    "Context",
    "Finding",
    "Outcome",
    "RunReport",
    "Violation",
    "check",
    "check_run",
]
