package applier;

import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.time.Duration;
import java.util.List;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.common.TopicPartition;

/**
 * Writes what a consumer polls to a file, from which Python reads it as columns (consume/kafka/records.py). No record is
 * known to Python: its garbage would keep all of them in memory for as long as a window is read.
 *
 * The records of one partition of a poll are a block of six columns, numbers in little endian: offsets and timestamps of
 * 8 bytes each, sizes of keys and of values of 4 (-1: there is none), bytes of the keys, bytes of the values.
 *
 * Janino compiles it, which knows generics only as casts.
 */
public class RecordFile {
  private static final int OFFSET = 0;
  private static final int TIMESTAMP = 1;
  private static final int KEY_SIZE = 2;
  private static final int VALUE_SIZE = 3;

  private final FileChannel file;
  private final ByteBuffer buffer = ByteBuffer.allocateDirect(1 << 20).order(ByteOrder.LITTLE_ENDIAN);
  private long end = 0;

  public RecordFile(String path) throws IOException {
    file = new FileOutputStream(path).getChannel();
  }

  /** Begin anew, in the place that the file has. */
  public void reset() {
    end = 0;
  }

  public void close() throws IOException {
    file.close();
  }

  /**
   * Wait for what comes next, and append it. The answer has a line for each partition: topic, partition, number of
   * records, bytes of keys and of values, and the offset to read next.
   *
   * @throws OutOfMemoryError the values have more bytes than `most`; nothing of them is appended, and they are lost
   */
  public String poll(Consumer consumer, long milliseconds, long most) throws IOException {
    ConsumerRecords polled = consumer.poll(Duration.ofMillis(milliseconds));
    long bytes = 0;
    StringBuilder found = new StringBuilder();
    for (Object each : polled.partitions()) {
      TopicPartition place = (TopicPartition) each;
      List records = polled.records(place);
      long keys = 0;
      long values = 0;
      for (Object record : records) {
        keys += Math.max(0, ((ConsumerRecord) record).serializedKeySize());
        values += Math.max(0, ((ConsumerRecord) record).serializedValueSize());
      }
      bytes += values;
      found.append(place.topic()).append(' ').append(place.partition()).append(' ').append(records.size()).append(' ');
      found.append(keys).append(' ').append(values).append(' ').append(consumer.position(place)).append('\n');
    }
    if (bytes > most) {
      throw new OutOfMemoryError(bytes + " bytes of messages came at once");
    }
    file.position(end);
    buffer.clear();
    for (Object each : polled.partitions()) {
      append(polled.records((TopicPartition) each));
    }
    flush();
    end = file.position();
    return found.toString();
  }

  private void append(List records) throws IOException {
    for (int column = OFFSET; column <= VALUE_SIZE; column++) {
      for (Object record : records) {
        put((ConsumerRecord) record, column);
      }
    }
    for (Object record : records) {
      put((ByteBuffer) ((ConsumerRecord) record).key());
    }
    for (Object record : records) {
      put((ByteBuffer) ((ConsumerRecord) record).value());
    }
  }

  private void put(ConsumerRecord record, int column) throws IOException {
    if (buffer.remaining() < 8) {
      flush();
    }
    if (column == OFFSET) {
      buffer.putLong(record.offset());
    } else if (column == TIMESTAMP) {
      buffer.putLong(record.timestamp());
    } else {
      buffer.putInt(column == KEY_SIZE ? record.serializedKeySize() : record.serializedValueSize());
    }
  }

  /** In pieces of the buffer: a large one would take as much again, outside of the heap. */
  private void put(ByteBuffer bytes) throws IOException {
    if (bytes == null) {
      return;
    }
    ByteBuffer rest = (ByteBuffer) bytes.duplicate();
    int last = rest.limit();
    while (rest.position() < last) {
      if (!buffer.hasRemaining()) {
        flush();
      }
      rest.limit(Math.min(last, rest.position() + buffer.remaining()));
      buffer.put(rest);
    }
  }

  private void flush() throws IOException {
    buffer.flip();
    while (buffer.hasRemaining()) {
      file.write(buffer);
    }
    buffer.clear();
  }
}
