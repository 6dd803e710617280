# A data frame that is grouped and joined, strings, a sort, and linear algebra on a matrix of whole numbers.
n <- 400000
items <- data.frame(id = seq_len(n), key = (seq_len(n) * 7919) %% 100003)
items$text <- sprintf("value %d", items$key)
groups <- aggregate(id ~ key, data = items[items$key < 20000, ], FUN = sum)
cat("groups", nrow(groups), sum(groups$id), "\n")
joined <- merge(items[items$key < 5000, ], groups, by = "key")
cat("joined", nrow(joined), sum(nchar(joined$text)), "\n")
cat("ordered", sum(order(items$text, items$id) * (seq_len(n) %% 1009)), "\n")
m <- matrix((seq_len(640000) * 31) %% 17, 800)
cat("product", sum(m %*% t(m)), "\n")
lists <- lapply(seq_len(200000), function(i) c(i, i + 1))
gc(verbose = FALSE)
cat("lists", sum(vapply(lists, sum, 0)), "\n")
