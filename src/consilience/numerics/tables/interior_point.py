"""A primal–dual interior point for tables with known marginals, in the few dimensions of the dual.

Mehrotra's predictor–corrector method (1992) on the split costs of `cell_kernels`. Each iteration solves two systems with
the p × p matrix ΦDΦᵀ, which `MarginalBasis.gram` reads off one transform; all else is one pass over the cells.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from consilience.numerics.tables import cell_kernels as kernels
from consilience.numerics.tables.problem import TableProblem

Vector = NDArray[np.float64]

NEGLIGIBLE = 1e-13
"""A noisy value this small, in units of the mean cell, counts as 0 in the split of its cost."""
@dataclass(frozen=True, eq=False)
class InteriorPoint:
    cells: Vector
    prices: Vector
    steps: int
    gap: float
    misfit: float

def solve(problem, *, tolerance=1e-9, max_steps=100, verbose=False):
    costs=_costs(problem); y=problem.noisy; n=y.size; basis=problem.basis; b=problem.target
    free=costs.kind!=0
    lam=np.zeros(basis.rows); s=np.zeros(n)
    one=np.ones(n)
    p=np.where(costs.kind==1,np.maximum(y,0)*(problem.slope==0),0)+1.0
    v=np.where(costs.kind==2,y/2,np.where(costs.kind==3,y-1.0,1.)); m=np.where(costs.kind==2,y/2,1.0)
    zv=np.where(costs.kind==2,1.0/np.maximum(v,1e-300),0.0)
    zv=np.where(costs.kind==2,np.maximum(.1/np.maximum(v,1e-300),.1),0.)
    zm=np.maximum(costs.a+2*costs.q*m+zv,.1)
    zp=np.maximum(costs.c+2*costs.q*p,.1)
    parts=kernels.Parts(p,zp,m,zm,v,zv)
    D=np.empty(n); e=np.empty(n); scale=np.abs(b).max()
    quad=bool((costs.q>0).any())
    best=None
    for it in range(max_steps):
        x=np.where(costs.kind==0,0,np.where(costs.kind==1,p,p+v))
        rb=b-basis.apply(x)
        prod,cnt=kernels.predictor_terms(costs,parts,s,D,e)
        mu=prod/cnt
        obj=problem.objective(x); dual=problem.lower_bound(lam,s)
        rel=np.abs(rb).max()/scale
        if verbose: print(it,'obj %.10g dual %.10g mu %.2e rb %.2e'%(obj,dual,mu,rel), end=' ')
        if best is None or dual>best[0]: best=(dual,lam.copy())
        if rel<=1e-9 and obj-best[0]<=tolerance*problem.reference(obj): break
        M=basis.gram(D); reg=1e-14*M[0,0]
        while True:
            Mr=M.copy(); Mr[np.diag_indices(basis.rows)]+=reg
            try:
                cf=scipy.linalg.cho_factor(Mr,lower=True,check_finite=False,overwrite_a=True); break
            except np.linalg.LinAlgError:
                reg*=10
        def sol(r):
            d=scipy.linalg.cho_solve(cf,r,check_finite=False)
            for _ in range(2):
                d=d+scipy.linalg.cho_solve(cf,r-M@d,check_finite=False)
            return d
        dl=sol(rb-basis.apply(e)); ds=basis.adjoint(dl)
        ap,ad,i1,i2,i3=kernels.predicted_products(costs,parts,s,ds)
        mua=(prod+ap*i1+ad*i2+ap*ad*i3)/cnt
        centre=max((max(mua,0)/mu)**3,1e-8)*mu
        kernels.corrector_shift(costs,parts,s,ds,centre,e)
        dl=sol(rb-basis.apply(e)); ch=basis.adjoint(dl)
        ap,ad=kernels.longest_steps(costs,parts,s,ds,ch,centre)
        ap=min(1,.995*ap); ad=min(1,.995*ad)
        if quad: ap=ad=min(ap,ad)
        if verbose: print('steps %.3g %.3g reg %.1e'%(ap,ad,reg/M[0,0]))
        kernels.take_step(costs,parts,s,ds,ch,centre,ap,ad)
        lam=lam+ad*dl; s=basis.adjoint(lam)
    return InteriorPoint(x,best[1],it,obj-best[0],rel)

def _costs(pr):
    y=pr.noisy; n=y.size
    kind=np.full(n,2 if pr.floor else 3,dtype=np.int8)
    if pr.floor: kind[(y<=NEGLIGIBLE)|(pr.slope==0)]=1
    kind[pr.fixed]=0
    c=np.where(kind==1,pr.slope-2*pr.curvature*y,pr.slope)
    return kernels.Costs(kind,c,pr.slope.copy(),pr.curvature.copy())
