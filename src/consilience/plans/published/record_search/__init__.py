"""Records that satisfy as much weight of conjunctions as possible, found without looking at any data.

`best_record` searches a product of finite sets for the record that maximises a weighted sum of conjunctions of
conditions on single attributes: exactly by elimination where the tables that this needs are small, else by local
search.
"""

from consilience.plans.published.record_search.conjunctions import Conjunction
from consilience.plans.published.record_search.searching import FoundRecord, best_record

__all__ = ["Conjunction", "FoundRecord", "best_record"]
