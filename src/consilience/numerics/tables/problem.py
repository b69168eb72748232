import numpy as np
from dataclasses import dataclass
from consilience.numerics.tables.best_responses import *
@dataclass(frozen=True, eq=False)
class TableProblem:
    basis: object
    target: object
    noisy: object
    slope: object
    curvature: object
    ceiling: object
    floor: bool
    @property
    def fixed(self): return self.ceiling==0
    def objective(self,x):
        r=np.abs(x-self.noisy); return float(r@self.slope+(r*r)@self.curvature)
    def lower_bound(self,lam,s):
        return float(self.target@lam+sum_of_least_costs(self.noisy,self.slope,self.curvature,self.ceiling,self.floor,s))
    def reference(self,obj):
        return obj+1e-6*(np.abs(self.noisy)@self.slope)
