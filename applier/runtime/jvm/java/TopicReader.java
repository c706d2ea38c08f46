package applier;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteBufferDeserializer;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Reads topics in Spark's tasks (consume/kafka/spark.py): lines of topic, partition, first offset and end come in, blocks
 * of records of one partition go out, each behind its head and a line end. Bytes for each record would cost more than to
 * decode it.
 *
 * Janino compiles it, which knows generics only as casts.
 */
public class TopicReader implements FlatMapFunction {
  private final Properties options;
  private final long silent;

  /**
   * @param options those of Kafka's consumer
   * @param silent milliseconds without any progress until the brokers count as gone
   */
  public TopicReader(Properties options, long silent) {
    this.options = options;
    this.silent = silent;
  }

  public Iterator call(Object windows) {
    Blocks blocks = new Blocks(options, (String) ((Iterator) windows).next(), silent);
    TaskContext.get().addTaskCompletionListener(blocks);
    return blocks;
  }

  private static class Blocks implements Iterator, TaskCompletionListener {
    private static final Duration POLL = Duration.ofSeconds(1);

    private final KafkaConsumer consumer;
    private final long silent;
    private final Map ends = new HashMap();
    private final ArrayDeque found = new ArrayDeque();

    Blocks(Properties options, String window, long silent) {
      this.silent = silent;
      consumer = new KafkaConsumer(options, new ByteBufferDeserializer(), new ByteBufferDeserializer());
      Map starts = new HashMap();
      for (String line : window.split("\n")) {
        String[] words = line.split(" ");
        TopicPartition place = new TopicPartition(words[0], Integer.parseInt(words[1]));
        starts.put(place, Long.valueOf(words[2]));
        ends.put(place, Long.valueOf(words[3]));
      }
      consumer.assign(starts.keySet());
      for (Object place : starts.keySet()) {
        consumer.seek((TopicPartition) place, ((Long) starts.get(place)).longValue());
      }
    }

    public void onTaskCompletion(TaskContext context) {
      consumer.close(Duration.ofSeconds(1));
    }

    public boolean hasNext() {
      while (found.isEmpty() && !ends.isEmpty()) {
        try {
          read();
        } catch (OutOfMemoryError error) {
          // Spark ends the executor of a task that throws it, and with it what others have decoded, again and again.
          throw new IllegalStateException(error.toString());
        }
      }
      return !found.isEmpty();
    }

    public Object next() {
      hasNext();
      return found.remove();
    }

    public void remove() {
      throw new UnsupportedOperationException();
    }

    /** Wait for the next records, and let go of the partitions that are read to their ends. */
    private void read() {
      long deadline = System.currentTimeMillis() + silent;
      while (System.currentTimeMillis() < deadline) {
        ConsumerRecords polled = consumer.poll(POLL);
        boolean moved = !polled.isEmpty();
        List ended = new ArrayList();
        for (Object each : ends.keySet()) {
          TopicPartition place = (TopicPartition) each;
          long end = ((Long) ends.get(place)).longValue();
          Block.addAll(found, place, polled.records(place), end);
          // Where the last offsets hold no message, the position alone shows that they were read.
          if (consumer.position(place) >= end) {
            ended.add(place);
          }
        }
        ends.keySet().removeAll(ended);
        consumer.pause(ended);
        if (moved || !ended.isEmpty()) {
          return;
        }
      }
      throw new TimeoutException("no message came for a minute, though the topic has more.");
    }
  }

  private static class Block extends RecordColumns {
    /** So many bytes of records are a block, or one record that has more. */
    private static final int MOST_BYTES = 4 << 20;

    private Block(ByteBuffer buffer) {
      super(buffer);
    }

    protected void flush() throws IOException {
      throw new IOException("records are longer than they were counted");
    }

    /** Cut the records before an offset into blocks. */
    static void addAll(ArrayDeque found, TopicPartition place, List records, long end) {
      List block = new ArrayList();
      long size = 0;
      for (Object each : records) {
        ConsumerRecord record = (ConsumerRecord) each;
        if (record.offset() >= end) {
          break;
        }
        long own = FIXED_BYTES + Math.max(0, record.serializedKeySize()) + Math.max(0, record.serializedValueSize());
        if (size > 0 && size + own > MOST_BYTES) {
          found.add(bytes(place, block, size));
          block.clear();
          size = 0;
        }
        block.add(record);
        size += own;
      }
      if (size > 0) {
        found.add(bytes(place, block, size));
      }
    }

    private static byte[] bytes(TopicPartition place, List records, long size) {
      byte[] head = head(place, records).append('\n').toString().getBytes(StandardCharsets.UTF_8);
      if (head.length + size > Integer.MAX_VALUE) {
        throw new OutOfMemoryError(size + " bytes of one message came");
      }
      ByteBuffer buffer = ByteBuffer.allocate((int) (head.length + size));
      buffer.put(head);
      try {
        new Block(buffer).append(records);
      } catch (IOException error) {
        throw new IllegalStateException(error);
      }
      return buffer.array();
    }
  }
}
