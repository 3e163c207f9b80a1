package batches

// pending are models whose last batch is left out, and said so, though a mask could keep out what fills it up: statistics of a batch normalisation, and
// losses inside the graph that are sums, means or quotients of sums over samples. They are held to PyTorch without that batch. One that is
// kept now makes the test fail.
var pending = []string{
	"bn_graph_loss",
	"g_autoencoder",
	"g_bce_logits",
	"g_by_shape",
	"g_ce",
	"g_ce_ignore",
	"g_class_weights",
	"g_focal",
	"g_huber",
	"g_masked_mean",
	"g_mse",
	"g_norms",
	"g_smoothing",
	"g_sum",
	"g_token_mean",
	"g_triplet",
	"g_two_counts",
	"g_two_heads",
	"g_variance_of_sample",
	"g_weight_penalty",
	"g_weighted_samples",
	"g_z_loss",
}
