# A dictionary of strings, short-lived arrays in two tasks, and a sort.
function fill(count)
    all = Dict(n => "value $n" for n in 0:count-1)
    sum(length(all[(n * 7919) % count]) for n in 0:count-1)
end

function churn(seed)
    kept, total = Vector{Vector{UInt8}}(), 0
    for n in 1:200_000
        bytes = zeros(UInt8, 200 + n % 100)
        bytes[1+n%length(bytes)] = (n + seed) % 256
        push!(kept, bytes)
        length(kept) > 20_000 && (total += sum(popfirst!(kept)))
    end
    total + length(kept)
end

println("objects ", fill(400_000))
println("tasks ", sum(fetch.([Threads.@spawn churn(seed) for seed in 1:2])))
numbers = sort([n * 2654435761 % 4000037 for n in 0:3_999_999])
println("numbers ", foldl((sum, pair) -> (sum + pair[2] * (pair[1] % 7)) % 1000003, enumerate(numbers); init=0))
GC.gc()
