import numpy as np, scipy.linalg
from consilience.numerics.tables.best_responses import best_responses
def ssn(pr,curv,lam=None,tol=1e-12,max_steps=100,verbose=False,tau=1e-3):
    basis=pr.basis; b=pr.target; n=pr.noisy.size
    lam=np.zeros(basis.rows) if lam is None else lam.copy()
    s=basis.adjoint(lam); x=np.empty(n); k=np.empty(n); x2=np.empty(n); k2=np.empty(n)
    ceil=np.where(pr.fixed,0.,np.inf)
    val=b@lam+best_responses(pr.noisy,pr.slope,curv,ceil,pr.floor,s,x,k)
    sc=np.abs(b).max(); evals=0
    stall=0
    for it in range(max_steps):
        g=b-basis.apply(x); gn=np.abs(g).max()/sc
        if verbose: print(it,'val %.12g gn %.2e moving %d'%(val,gn,(k>0).sum()),end=' ')
        if gn<=tol: break
        H=basis.gram(k); eps=max(1e-13,tau*min(1e-3,gn))*max(H[0,0],1e-8*n/(2*curv.max()))
        while True:
            Hr=H.copy(); Hr[np.diag_indices(basis.rows)]+=eps
            try: cf=scipy.linalg.cho_factor(Hr,lower=True,overwrite_a=True,check_finite=False); break
            except np.linalg.LinAlgError: eps*=10
        d=scipy.linalg.cho_solve(cf,g,check_finite=False); ds=basis.adjoint(d); gd=g@d; t=1.
        while True:
            v2=b@(lam+t*d)+best_responses(pr.noisy,pr.slope,curv,ceil,pr.floor,s+t*ds,x2,k2); evals+=1
            if v2>=val+1e-4*t*gd-1e-13*abs(val): break
            t*=.5
            if t<1e-10: break
        if verbose: print('t',t,'eps',eps/max(H[0,0],1e-300))
        lam=lam+t*d; s=basis.adjoint(lam); val=v2; x,x2=x2,x; k,k2=k2,k
    return x,lam,it,gn
