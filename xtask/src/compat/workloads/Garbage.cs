using System;
using System.Collections.Generic;
using System.Threading;

/// Objects that live long and others that do not, in several threads, and a large array.
public static class Garbage {
    public static void Main() {
        var all = new Dictionary<int, string>();
        for (int n = 0; n < 600000; n++) all[n] = "value " + n;
        long sum = 0;
        for (long n = 0; n < 600000; n++) sum += all[(int)(n * 7919 % 600000)].Length;
        Console.WriteLine("objects " + sum);
        var sums = new long[4];
        var threads = new List<Thread>();
        for (int seed = 0; seed < 4; seed++) {
            int own = seed;
            var thread = new Thread(() => sums[own] = Churn(own));
            thread.Start();
            threads.Add(thread);
        }
        foreach (var thread in threads) thread.Join();
        Console.WriteLine("threads " + (sums[0] + sums[1] + sums[2] + sums[3]));
        var numbers = new long[4000000];
        for (long n = 0; n < numbers.Length; n++) numbers[n] = n * 2654435761L % 4000037;
        Array.Sort(numbers);
        long ordered = 0;
        for (int n = 0; n < numbers.Length; n++) ordered = (ordered + numbers[n] * (n % 7)) % 1000003;
        GC.Collect();
        Console.WriteLine("numbers " + ordered + " " + all.Count);
    }

    /// Makes short-lived objects, and keeps the last ones.
    static long Churn(int seed) {
        var kept = new byte[20000][];
        long sum = 0;
        for (int n = 0; n < 200000; n++) {
            var bytes = new byte[200 + n % 100];
            bytes[n % bytes.Length] = (byte)(n + seed);
            var oldest = kept[n % kept.Length];
            kept[n % kept.Length] = bytes;
            if (oldest != null) foreach (byte value in oldest) sum += value;
        }
        return sum + kept.Length;
    }
}
