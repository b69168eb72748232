"""What differs from Qardaji, Yang and Li (2014) in more than one of their figures."""

DATA = (
    "Data: Kosarak is drawn with replacement from the first 36,682 of its records, those at hand, to the paper's "
    "number; the AOL-sized set is generated, with the paper's number of users and categories."
)
DESIGNS = (
    "Designs: the best that ship with this project, of the paper's sizes but for C3(8,326), which has 333 views here."
)
RIPPLE = (
    "Method: Ripple leaves cells above −θ alone, θ a hundredth of the noise's scale; the paper says some small value."
)
CANDLES = (
    "The paper prints candlesticks without numbers. They show the mean error of the runs for each marginal; the "
    "statistic of one run is the median over its marginals, in units of another method's median in the same run."
)
