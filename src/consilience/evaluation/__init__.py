"""Error against the truth. NOT PRIVATE: what it finds is computed from confidential records without noise.

It is for people who may see the records: to compare methods, or to judge a release before it is published. Results say
that they are not private wherever they are shown, and none of them may be published or used to choose what is.
"""

from consilience.evaluation.evaluate import Evaluation, QueryError, evaluate

__all__ = ["Evaluation", "QueryError", "evaluate"]
