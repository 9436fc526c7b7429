"""What the baselines make small, as functions of codes and of a mixture of them.

DEC: Xie et al. (2016), Unsupervised deep embedding for clustering analysis. VaDE: Jiang et al.
(2017), Variational deep embedding.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


def student_t(codes, centres):
    """Soft assignments `[n, K]` of codes `[n, d]` to centres `[K, d]` (DEC, Eq. 1, α = 1)."""
    differences = codes[:, None] - centres[None]
    weight = 1.0 / (1.0 + jnp.sum(differences**2, axis=2))
    return weight / jnp.sum(weight, axis=1, keepdims=True)


def target_distribution(assignments):
    """Sharper assignments of all images, `[n, K]`, divided by the clusters' sizes (DEC, Eq. 3)."""
    weight = assignments**2 / jnp.sum(assignments, axis=0, keepdims=True)
    return weight / jnp.sum(weight, axis=1, keepdims=True)


def kullback_leibler(target, assignments):
    """The divergence of each row of assignments from its target (DEC, Eq. 2), `[n]`."""
    ratio = jnp.log(target + 1e-12) - jnp.log(assignments + 1e-12)
    return jnp.sum(target * ratio, axis=1)


class Mixture(eqx.Module):
    """Gaussians with independent coordinates: what VaDE draws codes from."""

    logits: jax.Array
    means: jax.Array
    log_variances: jax.Array

    def log_responsibilities(self, codes):
        """Logarithms of p(c | z), `[n, K]`, of codes z `[n, d]` (VaDE, Eq. 16)."""
        squares = (codes[:, None] - self.means[None]) ** 2 * jnp.exp(-self.log_variances)[None]
        halves = jnp.sum(squares + self.log_variances[None], axis=2) / 2
        return jax.nn.log_softmax(self.logits[None] - halves, axis=1)

    def divergence(self, means, log_variances, log_responsibilities):
        """KL(q(z) q(c) || p(z | c) p(c)), `[n]`: the ELBO without reconstruction (VaDE, Eq. 12).

        Args:
            means: Of the codes' distribution q(z), `[n, d]`.
            log_variances: Of the same.
            log_responsibilities: Logarithms of q(c), `[n, K]`.
        """
        squares = (means[:, None] - self.means[None]) ** 2 + jnp.exp(log_variances)[:, None]
        squares = squares * jnp.exp(-self.log_variances)[None] + self.log_variances[None]
        weight = jnp.exp(log_responsibilities)
        # A component far away has a weight of zero, and a logarithm that may be -inf.
        to_prior = jnp.where(
            weight > 0.0,
            weight * (log_responsibilities - jax.nn.log_softmax(self.logits)[None]),
            0.0,
        )
        return (
            jnp.sum(weight * jnp.sum(squares, axis=2), axis=1) / 2
            + jnp.sum(to_prior, axis=1)
            - jnp.sum(1.0 + log_variances, axis=1) / 2
        )


def fitted_mixture(codes, num_clusters, seed):
    """A mixture fitted to codes `[n, d]` of unit variance by scikit-learn, best of ten starts."""
    from sklearn.mixture import GaussianMixture

    fitted = GaussianMixture(
        num_clusters, covariance_type="diag", reg_covar=1e-2, n_init=10, random_state=seed
    ).fit(codes)
    result = fitted.weights_, fitted.means_, fitted.covariances_
    weights, means, variances = (jnp.asarray(np.asarray(each, np.float32)) for each in result)
    return Mixture(jnp.log(weights), means, jnp.log(variances))
