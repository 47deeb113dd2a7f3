"""Drain cases: one small file a truth, each with a scenario on a real broker and the answer that is expected.

``iter_cases()`` yields them; library and trigger, command line and Spark job are all run on the same ones.
"""

from tests.integration.drain_cases.kit import Case, Kit, Scenario, iter_cases

__all__ = ["Case", "Kit", "Scenario", "iter_cases"]
