"""Lee and Kifer (2016): post-processing for iterative differentially private algorithms."""
