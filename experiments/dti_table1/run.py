"""DTI clustering, Table 1: USPS and the MNIST test digits, K-means and mixture.

    python -m experiments.dti_table1.run [--seed 0] [--seeds N] [--sets ...] [--methods ...]

Prints accuracy and loss against the seconds trained, then each run's end, then mean, deviation,
least, median, greatest and the run of least loss. Labels are used to score and for nothing else.
"""

from experiments.dti import table

PAPER = {
    ("usps", "dti-kmeans"): {"acc": 0.864, "nmi": 0.882, "least_loss": 0.898},
    ("usps", "dti-gmm"): {"acc": 0.845, "nmi": 0.872, "least_loss": 0.873},
    ("mnist-test", "dti-kmeans"): {"acc": 0.966, "nmi": 0.946, "least_loss": 0.980},
    ("mnist-test", "dti-gmm"): {"acc": 0.978, "nmi": 0.947, "least_loss": 0.980},
    ("mnist", "dti-kmeans"): {"acc": 0.973, "nmi": 0.940, "least_loss": 0.972},
    ("mnist", "dti-gmm"): {"acc": 0.959, "nmi": 0.932, "least_loss": 0.971},
}


def main():
    table("dti_table1", __doc__, PAPER, ["usps", "mnist-test"])


if __name__ == "__main__":
    main()
